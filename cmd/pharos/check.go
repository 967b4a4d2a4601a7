package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/probe"
)

type checkCmd struct {
	Relays  []string  `arg:"" name:"url" help:"Relay URLs or host names, files with one per line, or - for standard input."`
	JSON    bool      `name:"json" help:"One JSON object per line and relay."`
	Debug   bool      `name:"debug" help:"Tell every step of each probe as it happens; with --json on standard error."`
	Write   bool      `name:"write" help:"Also send one short-lived event (kind 20166), signed by a key that is used for nothing else, where the relay's NIP-11 does not speak against it."`
	Deep    bool      `name:"deep" help:"Also test what the relay does: COUNT, search, negentropy, limits, a fake's answers, and both address families."`
	Watch   *Duration `name:"watch" placeholder:"INTERVAL" help:"Probe again every INTERVAL, such as 10s, until interrupted, and print what changes."`
	Vantage string    `help:"Probe from this vantage's address, or through its proxy."`
}

// minWatch is the shortest interval of check --watch.
const minWatch = time.Second

// Run probes each relay and prints what was seen, as the probes end. The status
// is 1 unless every relay was ok or refused, with --watch in its last probe.
func (k *checkCmd) Run(ctx context.Context, c *command) error {
	if k.Watch != nil && k.Watch.D() < minWatch {
		return exitf(exitUsage, "--watch %s is too often for other people's relays: at least %s", *k.Watch, minWatch)
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	targets, err := k.targets(c, cfg)
	if err != nil {
		return err
	}
	from, err := k.from(cfg)
	if err != nil {
		return err
	}
	pc, err := checkerConfig(&cfg.Config, from, c.log)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	if k.Write || pc.Auth {
		if pc.Key, err = nostr.NewKey(); err != nil {
			return exitWith(exitStart, err)
		}
	}
	checker, err := probe.New(pc)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	if !checker.HasRoots() {
		_, _ = fmt.Fprintln(c.stderr, "pharos: there are no CA certificates here, so every wss relay will look untrusted: install the package ca-certificates")
	}

	ctx, stop := c.untilSignal(ctx)
	defer stop()
	out := newCheckPrinter(c.stdout, c.stderr, k, targets.relays)
	run := newCheckRun(checker, newGuest(cfg.Probe.PerIP, cfg.Probe.PerSubnet), targets.relays)
	run.write, run.deep = k.Write, k.Deep
	if k.Debug {
		run.begin = out.beginTranscript
	}
	if k.Watch != nil {
		run.watch(ctx, k.Watch.D(), out)
	} else {
		out.beginRound()
		run.round(ctx, 0, out.print)
		out.clearProgress()
	}
	switch bad := targets.junk + run.bad(); {
	case out.err != nil:
		return exitf(exitStart, "the results could not be written: %v", out.err)
	case k.Watch == nil && ctx.Err() != nil:
		return exitf(exitBad, "interrupted after %d of %s", run.done(), counted(len(targets.relays), "relay", "relays"))
	case bad > 0:
		return exitf(exitBad, "%d of %s not ok", bad, counted(len(targets.relays)+targets.junk, "relay is", "relays are"))
	}
	return nil
}

// from is the vantage that was named; nil = none was.
func (k *checkCmd) from(cfg *loaded) (*Vantage, error) {
	if k.Vantage == "" {
		return nil, nil
	}
	var names []string
	for i := range cfg.Vantages {
		v := &cfg.Vantages[i]
		names = append(names, v.Name)
		if v.Name == k.Vantage {
			return v, nil
		}
	}
	return nil, exitf(exitUsage, "there is no vantage %q: the configuration has %s", k.Vantage, strings.Join(names, ", "))
}

// checkTargets is what the arguments name.
type checkTargets struct {
	relays []monitor.RelayURL
	junk   int // lines of files that name no relay
	seen   map[monitor.RelayURL]bool
}

func (t *checkTargets) add(u monitor.RelayURL) {
	if !t.seen[u] {
		t.seen[u] = true
		t.relays = append(t.relays, u)
	}
}

// targets reads arguments, files and standard input. A wrong argument ends the
// command; a wrong line of a file is named and counted.
func (k *checkCmd) targets(c *command, cfg *loaded) (*checkTargets, error) {
	t := &checkTargets{seen: map[monitor.RelayURL]bool{}}
	var wrong []string
	lines := func(r io.Reader, name string) error {
		var junk []junkLine
		if err := readRelayLines(r, name, withScheme, cfg.Probe.AllowNetworks, t.add, &junk); err != nil {
			return exitf(exitUsage, "%s cannot be read: %s", name, reason(err))
		}
		for _, j := range junk {
			_, _ = fmt.Fprintf(c.stderr, "pharos: %s:%d: skipped, %s: %s\n", j.File, j.Line, j.Reason, j.Words)
		}
		t.junk += len(junk)
		return nil
	}
	for _, arg := range k.Relays {
		if arg == "-" {
			if err := lines(c.stdin, "standard input"); err != nil {
				return nil, err
			}
			continue
		}
		if !strings.Contains(arg, "://") {
			f, err := os.Open(arg) // a pipe of the shell's is fine here
			if err == nil {
				err = lines(f, arg)
				_ = f.Close()
				if err != nil {
					return nil, err
				}
				continue
			}
			if isPath(arg) || errors.Is(err, fs.ErrPermission) {
				wrong = append(wrong, fmt.Sprintf("%s cannot be read: %s", arg, reason(err)))
				continue
			}
		}
		u, err := monitor.ParseRelayURL(withScheme(arg), cfg.Probe.AllowNetworks...)
		if err != nil {
			word, means := refusal(err)
			wrong = append(wrong, fmt.Sprintf("%q is no relay that can be probed (%s): %s", redact(arg), word, means))
			continue
		}
		t.add(u)
	}
	if len(wrong) > 0 {
		return nil, exitf(exitUsage, "%s", strings.Join(wrong, "\n"))
	}
	if len(t.relays) == 0 {
		return nil, exitf(exitUsage, "there is no relay to probe in what was given")
	}
	return t, nil
}

// isPath tells a file's name from a host's, which may have a path too.
func isPath(s string) bool {
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../")
}

// withScheme adds wss:// to what a person wrote without a scheme.
func withScheme(s string) string {
	if strings.Contains(s, "://") {
		return s
	}
	return "wss://" + s
}

// checkerConfig is the configuration as package probe takes it, for probes from a
// vantage of this process; nil = from none of them. It has no key.
func checkerConfig(c *Config, from *Vantage, log *slog.Logger) (probe.Config, error) {
	pc := probeConfig(c, log)
	var err error
	if pc.Proxies, err = c.proxies(); err != nil {
		return pc, err
	}
	overall := c.Networks.Tor.Overall.D()
	pc.Overall = map[monitor.Network]time.Duration{monitor.Tor: overall, monitor.I2P: overall, monitor.Loki: overall}
	if from == nil {
		return pc, nil
	}
	pc.SourceAddress = from.SourceAddress
	if from.Proxy != "" {
		p, err := probe.ParseProxy(from.Proxy.Reveal())
		if err != nil {
			return pc, fmt.Errorf("vantage %s: %w", from.Name, err)
		}
		pc.Proxy = &p
	}
	return pc, nil
}

// proxies are the ways into the networks beside clearnet that are configured.
func (c *Config) proxies() (map[monitor.Network]probe.Proxy, error) {
	out := map[monitor.Network]probe.Proxy{}
	for n, d := range map[monitor.Network]DSN{monitor.Tor: c.Networks.Tor.Proxy, monitor.I2P: c.Networks.I2P.Proxy, monitor.Loki: c.Networks.Loki.Proxy} {
		if d == "" {
			continue
		}
		p, err := probe.ParseProxy(d.Reveal())
		if err != nil {
			return nil, fmt.Errorf("networks.%s.proxy: %w", n, err)
		}
		out[n] = p
	}
	return out, nil
}

// probeConfig is the configuration's probe section as package probe takes it.
func probeConfig(c *Config, log *slog.Logger) probe.Config {
	t := c.Probe.Timeouts
	return probe.Config{
		Timeouts: probe.Timeouts{
			DNS: t.DNS.D(), TCP: t.TCP.D(), TLS: t.TLS.D(), Upgrade: t.Upgrade.D(),
			Read: t.Read.D(), Write: t.Write.D(), Info: t.Info.D(), Overall: t.Overall.D(),
		},
		Auth:      c.Probe.Auth,
		UserAgent: c.userAgent(), Origin: c.Probe.Origin, AllowNetworks: c.Probe.AllowNetworks,
		CAFile: c.Probe.TLSCAFile, Resolvers: c.Probe.Resolvers, Log: log,
	}
}
