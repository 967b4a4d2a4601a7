package main

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/postgres"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/vantage"
)

// The bounds of the probe interval. Below the lower one a probe would hardly
// end before the next is due, and relays would have reason to complain; the
// upper one leaves every online relay several checks within live.max_age.
const (
	minInterval = 10 * time.Second
	maxInterval = time.Hour
)

// validator collects problems by key.
type validator struct{ problems Problems }

func (v *validator) fail(key, format string, args ...any) {
	v.problems = append(v.problems, Problem{Key: key, Text: fmt.Sprintf(format, args...)})
}

func (v *validator) check(key string, err error) {
	if err != nil {
		v.fail(key, "%v", err)
	}
}

func between[T cmp.Ordered](v *validator, key string, x, low, high T) {
	if x < low || x > high {
		v.fail(key, "is %v: it must be between %v and %v", x, low, high)
	}
}

func (v *validator) duration(key string, x Duration, low, high time.Duration) {
	if x.D() < low || x.D() > high {
		v.fail(key, "is %v: it must be between %v and %v", x, Duration(low), Duration(high))
	}
}

func (v *validator) fraction(key string, x float64) {
	if !(x >= 0 && x <= 1) {
		v.fail(key, "is %v: it is a share between 0 and 1", x)
	}
}

// Validate returns everything that is impossible in the values, each with its
// key. It reads the files that the configuration names, and opens nothing else.
func (c *Config) Validate() Problems {
	v := &validator{}
	c.validateService(v)
	c.validateRelays(v)
	c.validateProbe(v)
	c.validateRules(v)
	c.validateNetworks(v)
	c.validateVantages(v)
	v.check("geo.city_db", checkReadable(c.Geo.CityDB))
	v.check("geo.asn_db", checkReadable(c.Geo.ASNDB))
	v.check("geo.attribution", checkText(c.Geo.Attribution, 0, 300))
	return v.problems
}

func (c *Config) validateService(v *validator) {
	v.check("listen", checkHostPort(c.Listen, true))
	if c.PublicURL != "" {
		// Canonical, not ParseRelayURL: a monitor on a private network may have
		// a name that no probe would be sent to.
		if _, err := monitor.Canonical(c.PublicURL); err != nil {
			word, _ := refusal(err)
			v.fail("public_url", "is no ws:// or wss:// URL (%s)", word)
		}
	}
	if c.Database.URL != "" {
		if postgres.CheckURL(c.Database.URL.Reveal()) != nil { // which says no more than this
			v.fail("database.url", "is no PostgreSQL address that can be used: write postgres://USER@HOST:5432/DATABASE?sslmode=require, a password behind USER and a colon, its special characters %%-encoded (@ is %%40, / is %%2F)")
		}
	}
	between(v, "database.max_conns", c.Database.MaxConns, 4, 1000)
	if b := c.Database.Backup; b != backupDaily && b != backupOff {
		v.fail("database.backup", "is %q: write %s or %s", b, backupDaily, backupOff)
	}
	if c.Database.BackupDir != "" {
		v.check("database.backup_dir", checkWritableDir(c.Database.BackupDir))
	}
	if c.Key.PasswordFile != "" {
		_, err := readPassword(c.Key.PasswordFile, false)
		v.check("key.password_file", err)
	}
	for i, proxies := range c.TrustedProxies {
		if proxies.Bits() == 0 {
			v.fail(fmt.Sprintf("trusted_proxies[%d]", i), "is every address there is, so anybody could claim to be anybody: write the addresses of your proxies alone")
		}
	}
	v.check("name", checkText(c.Name, 1, 100))
	v.check("contact", checkText(c.Contact, 0, 300))

	v.duration("publish.frequency", c.Publish.Frequency, time.Minute, day)
	// reports.md 11: copies elsewhere outlive at least one missed report.
	if c.Publish.Expiration < 2*c.Publish.Frequency {
		v.fail("publish.expiration", "is %v: it must be at least twice publish.frequency, which is %v", c.Publish.Expiration, c.Publish.Frequency)
	}
	v.duration("publish.expiration", c.Publish.Expiration, 0, 30*day)

	between(v, "limits.relay_req_per_minute", c.Limits.RelayReqPerMinute, 1, 1_000_000)
	between(v, "limits.relay_connections", c.Limits.RelayConnections, 1, 100_000)
	between(v, "limits.relay_subscriptions", c.Limits.RelaySubscriptions, 1, 10_000)
	between(v, "limits.http_per_minute", c.Limits.HTTPPerMinute, 1, 1_000_000)
	c.validateOperators(v)
	v.duration("retention.raw", c.Retention.Raw, day, 366*day)
	if f := c.Retention.MinFreeDisk; !(f >= 0 && f <= 0.9) {
		v.fail("retention.min_free_disk", "is %v: it is the share of the disk that stays free, between 0 and 0.9", f)
	}
}

// validateOperators never repeats what was written: it may be a secret key.
func (c *Config) validateOperators(v *validator) {
	first := map[string]int{}
	for i, s := range c.Operators {
		key := fmt.Sprintf("operators[%d]", i)
		pubkey, err := nostr.ParsePublicKey(s)
		if err != nil {
			v.fail(key, "is no public key: %s", strings.TrimPrefix(err.Error(), nostr.ErrBadPubkey.Error()+": "))
			continue
		}
		if j, twice := first[pubkey]; twice {
			v.fail(key, "is the key of operators[%d] once more", j)
			continue
		}
		first[pubkey] = i
	}
}

// operatorKeys are the operators' public keys in hex.
func (c *Config) operatorKeys() ([]string, error) {
	keys := make([]string, len(c.Operators))
	for i, s := range c.Operators {
		var err error
		if keys[i], err = nostr.ParsePublicKey(s); err != nil {
			return nil, fmt.Errorf("operators[%d]: %w", i, err)
		}
	}
	return keys, nil
}

func (c *Config) validateRelays(v *validator) {
	for i, s := range c.Relays {
		if _, err := monitor.ParseRelayURL(s, c.Probe.AllowNetworks...); err != nil {
			word, means := refusal(err)
			v.fail(fmt.Sprintf("relays[%d]", i), "is no relay that can be watched (%s): %s", word, means)
		}
	}
	for i, s := range c.Exclude {
		if _, err := monitor.Canonical(s); err != nil {
			word, means := refusal(err)
			v.fail(fmt.Sprintf("exclude[%d]", i), "is no relay URL (%s): %s", word, means)
		}
	}
	c.validateDiscovery(v)
	for i, name := range c.RelayFiles {
		f, err := openRegular(name, maxRelayFile)
		if err == nil {
			_ = f.Close()
		}
		if err != nil {
			v.fail(fmt.Sprintf("relay_files[%d]", i), "%q cannot be read: %s", name, reason(err))
		}
	}
}

func (c *Config) validateDiscovery(v *validator) {
	d, kinds := &c.Discovery, Default().Discovery.Kinds
	for i, s := range d.Sources.List {
		if _, err := monitor.ParseRelayURL(s, c.Probe.AllowNetworks...); err != nil {
			word, means := refusal(err)
			v.fail(fmt.Sprintf("discovery.sources[%d]", i), "is no relay that can be asked (%s): %s", word, means)
		}
	}
	if d.Enabled && !d.Sources.Default && len(d.Sources.List) == 0 {
		v.fail("discovery.sources", "is empty: name relays to ask, write default, or set discovery.enabled to false")
	}
	for i, k := range d.Kinds {
		if !slices.Contains(kinds, k) {
			v.fail(fmt.Sprintf("discovery.kinds[%d]", i), "is %d: relays are named in events of the kinds %s", k, enumerated(kinds))
		}
	}
	if d.Enabled && len(d.Kinds) == 0 {
		v.fail("discovery.kinds", "is empty: name some of the kinds %s, or set discovery.enabled to false", enumerated(kinds))
	}
	v.duration("discovery.interval", d.Interval, time.Minute, 30*day)
	between(v, "discovery.max_relays", d.MaxRelays, 1, 10_000_000)
	between(v, "discovery.max_per_host", d.MaxPerHost, 1, 100_000)
}

// enumerated writes numbers for a person: "3, 10002 and 10050".
func enumerated(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + " and " + words[n]
	}
	return strings.Join(words, "")
}

func (c *Config) validateNetworks(v *validator) {
	for _, n := range []struct {
		key   string
		proxy DSN
	}{{"tor", c.Networks.Tor.Proxy}, {"i2p", c.Networks.I2P.Proxy}, {"loki", c.Networks.Loki.Proxy}} {
		v.check("networks."+n.key+".proxy", checkProxy(n.proxy))
	}
	between(v, "networks.tor.concurrency", c.Networks.Tor.Concurrency, 1, 100_000)
	v.duration("networks.tor.overall", c.Networks.Tor.Overall, time.Second, 5*time.Minute)
}

// checkProxy wants a SOCKS5 proxy or nothing; the error repeats none of it.
func checkProxy(d DSN) error {
	if d == "" {
		return nil
	}
	_, err := probe.ParseProxy(d.Reveal())
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), monitor.ErrInvalid.Error()+" proxy: "))
	}
	return nil
}

// checkReadable wants a regular file that can be opened.
func checkReadable(name string) error {
	if name == "" {
		return nil
	}
	f, err := openRegular(name, maxGeoFile)
	if err != nil {
		return fmt.Errorf("%q cannot be read: %s", name, reason(err))
	}
	return f.Close()
}

func (c *Config) validateProbe(v *validator) {
	p := &c.Probe
	v.duration("probe.interval", p.Interval, minInterval, maxInterval)
	t := &p.Timeouts
	for _, x := range []struct {
		key string
		d   Duration
	}{
		{"dns", t.DNS}, {"tcp", t.TCP}, {"tls", t.TLS}, {"upgrade", t.Upgrade}, {"read", t.Read}, {"write", t.Write}, {"info", t.Info},
	} {
		v.duration("probe.timeouts."+x.key, x.d, 100*time.Millisecond, time.Minute)
		if x.d > t.Overall && t.Overall > 0 {
			v.fail("probe.timeouts."+x.key, "is %v: it is longer than probe.timeouts.overall, which is %v", x.d, t.Overall)
		}
	}
	v.duration("probe.timeouts.overall", t.Overall, 100*time.Millisecond, 2*time.Minute)
	if t.Overall > p.Interval && p.Interval >= Duration(minInterval) {
		v.fail("probe.timeouts.overall", "is %v: it is longer than probe.interval, which is %v", t.Overall, p.Interval)
	}
	between(v, "probe.concurrency", p.Concurrency, 1, 100_000)
	if !(p.Rate >= 0 && p.Rate <= 100_000) {
		v.fail("probe.rate", "is %v: it must be 0, which spreads the probes over the interval, or a number of starts per second", p.Rate)
	}
	between(v, "probe.per_ip", p.PerIP, 1, 100_000)
	between(v, "probe.per_subnet", p.PerSubnet, 1, 100_000)
	if p.Origin != "" {
		_, err := parseURL(p.Origin, "https", "http")
		v.check("probe.origin", err)
	}
	for i, r := range p.Resolvers {
		v.check(fmt.Sprintf("probe.resolvers[%d]", i), checkResolver(r))
	}
	v.check("probe.user_agent", checkText(p.UserAgent, 0, 200))
	if p.TLSCAFile != "" {
		v.check("probe.tls_ca_file", checkCertificates(p.TLSCAFile))
	}
	v.duration("self_check.interval", c.SelfCheck.Interval, time.Second, 5*time.Minute)
	for i, s := range c.SelfCheck.Canaries.List {
		v.check(fmt.Sprintf("self_check.canaries[%d]", i), checkCanary(s, p.AllowNetworks))
	}
}

func (c *Config) validateRules(v *validator) {
	l := &c.Liveness
	between(v, "liveness.max_failures_before_dead", l.MaxFailuresBeforeDead, 1, 1000)
	v.duration("liveness.min_failure_duration", l.MinFailureDuration, 0, 30*day)
	v.duration("liveness.connectivity_window", l.ConnectivityWindow, time.Second, day)
	v.duration("liveness.failure_window", l.FailureWindow, time.Second, 30*day)
	v.duration("liveness.backoff_base_delay", l.BackoffBaseDelay, time.Second, day)
	v.duration("liveness.backoff_max_delay", l.BackoffMaxDelay, time.Second, day)
	v.duration("liveness.dead_retry_delay", l.DeadRetryDelay, time.Second, 30*day)
	v.duration("liveness.recovery_grace_period", l.RecoveryGracePeriod, 0, time.Hour)
	if l.BackoffMaxDelay < l.BackoffBaseDelay {
		v.fail("liveness.backoff_max_delay", "is %v: it is shorter than liveness.backoff_base_delay, which is %v", l.BackoffMaxDelay, l.BackoffBaseDelay)
	}
	if l.DeadRetryDelay < l.BackoffMaxDelay {
		v.fail("liveness.dead_retry_delay", "is %v: it is shorter than liveness.backoff_max_delay, which is %v", l.DeadRetryDelay, l.BackoffMaxDelay)
	}

	r := &c.Corroboration
	between(v, "corroboration.confirm_failures", r.ConfirmFailures, 1, 100)
	v.fraction("corroboration.hold_fraction", r.HoldFraction)
	between(v, "corroboration.hold_min", r.HoldMin, 0, 1_000_000)
	v.duration("corroboration.start_hold", r.StartHold, 0, day)
	v.duration("corroboration.max_clock_skew", r.MaxClockSkew, time.Second, time.Hour)

	v.fraction("live.min_fresh", c.Live.MinFresh)
	between(v, "live.min_count", c.Live.MinCount, 0, 1_000_000)
	v.duration("live.max_age", c.Live.MaxAge, time.Minute, day)
	if c.Live.MaxAge < 2*c.Probe.Interval {
		v.fail("live.max_age", "is %v: it must be at least twice probe.interval, which is %v", c.Live.MaxAge, c.Probe.Interval)
	}
}

var geohashText = regexp.MustCompile(`^[0-9b-hjkmnp-z]{1,12}$`)

func (c *Config) validateVantages(v *validator) {
	first := map[string]int{}
	for i, x := range c.Vantages {
		key := fmt.Sprintf("vantages[%d]", i)
		if err := monitor.CheckVantageName(x.Name); err != nil {
			v.fail(key+".name", "is %q: %v", x.Name, err)
		} else if j, twice := first[x.Name]; twice {
			v.fail(key+".name", "is %q: vantages[%d] has that name already", x.Name, j)
		}
		first[x.Name] = i
		if err := monitor.CheckVantageName(x.Group); x.Group != "" && err != nil {
			v.fail(key+".group", "is %q: %v", x.Group, err)
		}
		v.check(key+".proxy", checkProxy(x.Proxy))
		if x.Geohash != "" && !geohashText.MatchString(x.Geohash) {
			v.fail(key+".geohash", "is %q: a geohash has 1 to 12 of the characters 0-9 and b-z without i, l and o", x.Geohash)
		}
	}
}

// checkHostPort wants host:port; the port may be 0, any free one, when asked.
func checkHostPort(s string, zero bool) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("is %q: write host:port, such as 127.0.0.1:7766 or [::1]:7766", s)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 || n == 0 && !zero {
		return fmt.Errorf("is %q: the port must be a number up to 65535", s)
	}
	return nil
}

func checkResolver(s string) error {
	if err := checkHostPort(s, false); err != nil {
		return fmt.Errorf("is %q: write the address and port of a name server, such as 9.9.9.9:53", s)
	}
	host, _, _ := net.SplitHostPort(s)
	if _, err := netip.ParseAddr(host); err != nil {
		return fmt.Errorf("is %q: a name server is given by its IP address", s)
	}
	return nil
}

// checkCanary wants what a vantage can ask.
func checkCanary(s string, allow []netip.Prefix) error {
	_, err := vantage.ParseCanary(s, allow...)
	if err == nil {
		return nil
	}
	var u *monitor.URLError
	if errors.As(err, &u) {
		word, means := refusal(err)
		return fmt.Errorf("is no relay that can be asked (%s): %s", word, means)
	}
	return fmt.Errorf("is %q: write wss://relay, tcp://host:port or dns://name", redact(s))
}

// checkText wants low to high characters of one line.
func checkText(s string, low, high int) error {
	n := 0
	for _, r := range s {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return errors.New("holds a control or broken character")
		}
		n++
	}
	if n < low {
		return errors.New("is empty")
	}
	if n > high {
		return fmt.Errorf("has %d characters: at most %d fit", n, high)
	}
	return nil
}

// checkCertificates wants what probe.tls_ca_file must hold.
func checkCertificates(name string) error {
	b, err := readRegular(name, maxCAFile)
	if err != nil {
		return fmt.Errorf("%q cannot be read: %s", name, reason(err))
	}
	if !x509.NewCertPool().AppendCertsFromPEM(b) {
		return fmt.Errorf("%q holds no certificate in PEM form", name)
	}
	return nil
}

// refusal is the word of relay-url.md for why a relay URL was refused, and what
// it means and what to do.
func refusal(err error) (word, means string) {
	var u *monitor.URLError
	if !errors.As(err, &u) {
		return "invalid", "it is wrong"
	}
	if u.Reason == monitor.ReasonPrivate {
		return u.Reason, u.Words() + "; probe.allow_networks opens address ranges"
	}
	return u.Reason, u.Words()
}
