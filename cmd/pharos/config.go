package main

import (
	"net/netip"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
)

// Config is the whole configuration. The yaml tags are the keys of the file
// and, upper-case and joined by underscores behind PHAROS_, the names in the
// environment. Every key has a default; deploy/pharos.example.yaml explains
// each.
type Config struct {
	DataDir        string         `yaml:"data_dir"`
	Listen         string         `yaml:"listen"`
	PublicURL      string         `yaml:"public_url"`
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies"`
	Database       Database       `yaml:"database"`
	Key            Key            `yaml:"key"`
	Name           string         `yaml:"name"`
	Contact        string         `yaml:"contact"`
	Relays         []string       `yaml:"relays"`
	RelayFiles     []string       `yaml:"relay_files"`
	Exclude        []string       `yaml:"exclude"`
	Discovery      Discovery      `yaml:"discovery"`
	Probe          Probe          `yaml:"probe"`
	Networks       Networks       `yaml:"networks"`
	SelfCheck      SelfCheck      `yaml:"self_check"`
	Liveness       Liveness       `yaml:"liveness"`
	Corroboration  Corroboration  `yaml:"corroboration"`
	Live           Live           `yaml:"live"`
	Publish        Publish        `yaml:"publish"`
	Limits         Limits         `yaml:"limits"`
	Vantages       []Vantage      `yaml:"vantages"`
	Operators      []string       `yaml:"operators"`
	Geo            Geo            `yaml:"geo"`
	Retention      Retention      `yaml:"retention"`
	Alerts         Alerts         `yaml:"alerts"`
}

// Database says where the history is kept.
type Database struct {
	URL       DSN    `yaml:"url"` // empty: a private cluster in the data directory
	PgBin     string `yaml:"pg_bin"`
	MaxConns  int    `yaml:"max_conns"`
	Backup    string `yaml:"backup"`
	BackupDir string `yaml:"backup_dir"`
}

// The words of database.backup.
const (
	backupDaily = "daily"
	backupOff   = "off"
)

// Key says where the service key is.
type Key struct {
	File         string `yaml:"file"` // empty: service.key in the data directory
	PasswordFile string `yaml:"password_file"`
}

// Discovery finds relays on other relays.
type Discovery struct {
	Enabled    bool     `yaml:"enabled"`
	Sources    Builtin  `yaml:"sources"`
	Kinds      []int    `yaml:"kinds"`
	Interval   Duration `yaml:"interval"`
	MaxRelays  int      `yaml:"max_relays"`
	MaxPerHost int      `yaml:"max_per_host"`
}

// Probe says how relays are probed.
type Probe struct {
	Interval      Duration       `yaml:"interval"`
	Timeouts      Timeouts       `yaml:"timeouts"`
	Concurrency   int            `yaml:"concurrency"` // in flight, clearnet
	Rate          float64        `yaml:"rate"`        // starts per second, 0 = spread over the interval
	PerIP         int            `yaml:"per_ip"`
	PerSubnet     int            `yaml:"per_subnet"`
	Write         bool           `yaml:"write"`
	Auth          bool           `yaml:"auth"`
	Origin        string         `yaml:"origin"`
	AllowNetworks []netip.Prefix `yaml:"allow_networks"`
	TLSCAFile     string         `yaml:"tls_ca_file"`
	Resolvers     []string       `yaml:"resolvers"`
	UserAgent     string         `yaml:"user_agent"`
}

// Timeouts are the limits of a probe's stages.
type Timeouts struct {
	DNS     Duration `yaml:"dns"`
	TCP     Duration `yaml:"tcp"`
	TLS     Duration `yaml:"tls"`
	Upgrade Duration `yaml:"upgrade"`
	Read    Duration `yaml:"read"`
	Write   Duration `yaml:"write"`
	Info    Duration `yaml:"info"`
	Overall Duration `yaml:"overall"`
}

// Networks holds the ways to the networks beside clearnet.
type Networks struct {
	Tor  Tor   `yaml:"tor"`
	I2P  Proxy `yaml:"i2p"`
	Loki Proxy `yaml:"loki"`
}

// Tor is reached through a SOCKS5 proxy, with wider limits.
type Tor struct {
	Proxy       DSN      `yaml:"proxy"`       // empty = not reached
	Concurrency int      `yaml:"concurrency"` // probes in flight; I2P and Lokinet have as many of their own
	Overall     Duration `yaml:"overall"`     // of a probe; theirs too
}

// Proxy is the SOCKS5 proxy into a network; empty = not reached.
type Proxy struct {
	Proxy DSN `yaml:"proxy"`
}

// SelfCheck tells a vantage's own failure from a relay's.
type SelfCheck struct {
	Interval Duration `yaml:"interval"`
	Canaries Builtin  `yaml:"canaries"`
}

// Liveness holds the options of liveness.md.
type Liveness struct {
	MaxFailuresBeforeDead int      `yaml:"max_failures_before_dead"`
	MinFailureDuration    Duration `yaml:"min_failure_duration"`
	ConnectivityWindow    Duration `yaml:"connectivity_window"`
	FailureWindow         Duration `yaml:"failure_window"`
	BackoffBaseDelay      Duration `yaml:"backoff_base_delay"`
	BackoffMaxDelay       Duration `yaml:"backoff_max_delay"`
	DeadRetryDelay        Duration `yaml:"dead_retry_delay"`
	RecoveryGracePeriod   Duration `yaml:"recovery_grace_period"`
}

// Corroboration holds the options of corroboration.md.
type Corroboration struct {
	ConfirmFailures int      `yaml:"confirm_failures"`
	HoldFraction    float64  `yaml:"hold_fraction"`
	HoldMin         int      `yaml:"hold_min"`
	StartHold       Duration `yaml:"start_hold"` // 0 = two intervals
	MaxClockSkew    Duration `yaml:"max_clock_skew"`
}

// Live says when the list of online relays may be used.
type Live struct {
	MaxAge   Duration `yaml:"max_age"`
	MinCount int      `yaml:"min_count"`
	MinFresh float64  `yaml:"min_fresh"`
}

// Publish says how reports are published.
type Publish struct {
	Frequency       Duration `yaml:"frequency"`
	Expiration      Duration `yaml:"expiration"`
	Upstreams       []string `yaml:"upstreams"`
	Indexers        []string `yaml:"indexers"`
	Rate            float64  `yaml:"rate"`
	DeleteOnOffline bool     `yaml:"delete_on_offline"`
}

// Limits bound what one address may ask for.
type Limits struct {
	RelayReqPerMinute  int            `yaml:"relay_req_per_minute"`
	RelayConnections   int            `yaml:"relay_connections"`
	RelaySubscriptions int            `yaml:"relay_subscriptions"`
	HTTPPerMinute      int            `yaml:"http_per_minute"`
	Exempt             []netip.Prefix `yaml:"exempt"`
}

// Vantage is one point of this process from which relays are probed.
type Vantage struct {
	Name          string     `yaml:"name"`
	Group         string     `yaml:"group"` // empty = its name
	Geohash       string     `yaml:"geohash"`
	Proxy         DSN        `yaml:"proxy"`
	SourceAddress netip.Addr `yaml:"source_address"` // of this machine, empty = the system's choice
}

// Geo says where relays stand.
type Geo struct {
	CityDB      string `yaml:"city_db"`
	ASNDB       string `yaml:"asn_db"`
	Attribution string `yaml:"attribution"`
}

// Retention says how long what is kept.
type Retention struct {
	Raw         Duration `yaml:"raw"`
	HourVantage Duration `yaml:"hour_vantage"`
	Hour        Duration `yaml:"hour"`
	DayVantage  Duration `yaml:"day_vantage"`
	Day         Duration `yaml:"day"`
	MinFreeDisk float64  `yaml:"min_free_disk"`
}

// Alerts tell somebody.
type Alerts struct {
	Webhooks     []Webhook   `yaml:"webhooks"`
	Nostr        NostrAlerts `yaml:"nostr"`
	HeartbeatURL Secret      `yaml:"heartbeat_url"`
}

// Webhook is called on transitions.
type Webhook struct {
	URL        Secret   `yaml:"url"`
	SecretFile string   `yaml:"secret_file"`
	Relays     []string `yaml:"relays"`
}

// NostrAlerts are direct messages.
type NostrAlerts struct {
	Enabled bool `yaml:"enabled"`
}

// Default is the configuration of a process that was told nothing (config.md).
// What the domain and the probe have defaults for is theirs.
func Default() Config {
	const s, h = Duration(time.Second), Duration(time.Hour)
	const d = 24 * h
	t, l := probe.DefaultTimeouts(), monitor.DefaultLiveness()
	r, f := monitor.DefaultCorroboration(), monitor.DefaultFreshness()
	return Config{
		Listen:   "127.0.0.1:7766",
		Database: Database{MaxConns: 16, Backup: backupDaily},
		Name:     "Pharos",
		Discovery: Discovery{
			Enabled: true, Sources: Builtin{Default: true}, Kinds: []int{3, 10002, 10050, 30002, 30166},
			Interval: h, MaxRelays: 20000, MaxPerHost: 20,
		},
		Probe: Probe{
			Interval: Duration(r.Interval),
			Timeouts: Timeouts{
				DNS: Duration(t.DNS), TCP: Duration(t.TCP), TLS: Duration(t.TLS), Upgrade: Duration(t.Upgrade),
				Read: Duration(t.Read), Write: 5 * s, Info: Duration(t.Info), Overall: Duration(t.Overall),
			},
			Concurrency: 1024, PerIP: 2, PerSubnet: 4,
		},
		Networks:  Networks{Tor: Tor{Concurrency: 32, Overall: 45 * s}},
		SelfCheck: SelfCheck{Interval: 15 * s, Canaries: Builtin{Default: true}},
		Liveness: Liveness{
			MaxFailuresBeforeDead: l.MaxFailuresBeforeDead,
			MinFailureDuration:    Duration(l.MinFailureDuration),
			ConnectivityWindow:    Duration(l.ConnectivityWindow),
			FailureWindow:         Duration(l.FailureWindow),
			BackoffBaseDelay:      Duration(l.BackoffBaseDelay),
			BackoffMaxDelay:       Duration(l.BackoffMaxDelay),
			DeadRetryDelay:        Duration(l.DeadRetryDelay),
			RecoveryGracePeriod:   Duration(l.RecoveryGracePeriod),
		},
		Corroboration: Corroboration{
			ConfirmFailures: r.ConfirmFailures, HoldFraction: r.HoldFraction, HoldMin: r.HoldMin, MaxClockSkew: Duration(r.MaxClockSkew),
		},
		Live:    Live{MaxAge: Duration(f.MaxAge), MinCount: f.MinCount, MinFresh: f.MinFresh},
		Publish: Publish{Frequency: h, Expiration: 6 * h, Rate: 5, DeleteOnOffline: true},
		Limits: Limits{
			RelayReqPerMinute: 120, RelayConnections: 50, RelaySubscriptions: 50, HTTPPerMinute: 600,
			Exempt: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		},
		Vantages: []Vantage{{Name: "local"}},
		Retention: Retention{
			Raw: 48 * h, HourVantage: 8 * d, Hour: 92 * d, DayVantage: 400 * d, Day: 1830 * d, MinFreeDisk: 0.05,
		},
	}
}

// systemDataDir is where root's data are: a directory that postgres' own user
// can enter, which root's home is not.
const systemDataDir = "/var/lib/pharos"

// dataDir is the data directory, by default ./pharos-data, and /var/lib/pharos
// for root, whose working directory postgres' user often may not enter.
func (c *Config) dataDir(uid int) string {
	switch {
	case c.DataDir != "":
		return c.DataDir
	case uid == 0:
		return systemDataDir
	}
	return "pharos-data"
}
