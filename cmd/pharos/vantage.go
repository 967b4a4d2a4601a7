package main

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/probe/vantage/remote"
)

// tokenVariable is the environment's name of the token of an invitation.
const tokenVariable = "PHAROS_TOKEN"

type vantageCmd struct {
	Core      string `required:"" placeholder:"URL" help:"Address of the core, such as https://pharos.example.com."`
	Token     string `placeholder:"T" help:"One-time token of an invitation, at the first start. Other users of this machine see it in the process list: $$PHAROS_TOKEN or --token-file keep it from them."`
	TokenFile string `placeholder:"FILE" help:"File that holds the token."`
	Insecure  bool   `help:"Speak http to a core that is neither on this machine nor at a private address: what it is told can be read and what it answers be changed on the way."`
}

// systemVantageDir is where root's vantage keeps its data.
const systemVantageDir = "/var/lib/pharos-vantage"

// vantageDir is the data directory of a vantage: data_dir, else one that is not
// the core's, so that both can run on one machine.
func (c *Config) vantageDir(uid int) string {
	switch {
	case c.DataDir != "":
		return c.DataDir
	case uid == 0:
		return systemVantageDir
	}
	return "pharos-vantage"
}

// Run probes for a core on another machine until a signal comes, or the core
// revokes the vantage. A second signal ends the process at once.
func (v *vantageCmd) Run(ctx context.Context, c *command) error {
	core, err := v.core()
	if err != nil {
		return err
	}
	token, err := v.token(c.environ)
	if err != nil {
		return err
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if cfg.file != "" {
		c.log.Info("configuration", "file", cfg.file)
	}
	ctx, end := c.untilSignal(ctx)
	defer end()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), errInterrupted) {
			c.log.Info("stopping: a second signal ends at once")
		}
	})()
	hangups, unlisten := listen(c.hangups, syscall.SIGHUP)
	defer unlisten()

	limitMemory(c.log, false)
	dir := cfg.vantageDir(os.Getuid())
	if err := makeDataDir(dir); err != nil {
		return err
	}
	lock, err := lockDataDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.release() }()
	c.log.Info("data directory", "path", dir)
	key, err := openVantageKey(dir)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "vantage.json")
	place, err := loadEnrolment(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		place, err = v.enrol(ctx, c, &cfg.Config, file, core, key, token)
	case err == nil:
		err = place.matches(file, core, key)
		if err == nil && token != "" {
			c.log.Info("enrolled already: the token is not needed")
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil // interrupted as it was told to
		}
		return err
	}
	c.log.Info("vantage", "name", place.Name, "group", place.Group, "core", place.Core, "npub", key.Npub())
	o := &outpost{cfg: &cfg.Config, name: place.Name, key: key, log: c.log}
	return o.run(ctx, c, hangups, remote.Config{
		URL: place.Core, Key: key, Name: place.Name, Dir: dir, UserAgent: "pharos/" + versionText(), OnRules: o.rule, Log: c.log,
	})
}

// core is the core's address, as it is written in vantage.json.
func (v *vantageCmd) core() (string, error) {
	u, err := remote.CoreURL(v.Core)
	if err != nil {
		return "", exitWith(exitUsage, err)
	}
	if u.Scheme == "http" && !v.Insecure && !near(u) {
		return "", exitf(exitUsage, "%s is spoken in the clear, and everybody on the way could read and change it: write https://, or give --insecure if that way is safe", u)
	}
	return u.String(), nil
}

// near reports whether a URL leads to this machine or to a private address.
func near(u *url.URL) bool {
	host := strings.TrimSuffix(u.Hostname(), ".")
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host == "localhost" || strings.HasSuffix(host, ".localhost")
	}
	return !monitor.PublicAddress(a)
}

// token is the invitation's token from wherever it was given; "" = nowhere.
func (v *vantageCmd) token(environ []string) (Secret, error) {
	text := v.Token
	if v.TokenFile != "" {
		if text != "" {
			return "", exitf(exitUsage, "the token is given twice: with --token and with --token-file")
		}
		b, err := readRegular(v.TokenFile, maxPasswordFile)
		if err != nil {
			return "", exitf(exitUsage, "--token-file: %q cannot be read: %s", v.TokenFile, reason(err))
		}
		if text = strings.TrimSpace(string(b)); text == "" {
			return "", exitf(exitUsage, "--token-file: %q is empty: write the token in it", v.TokenFile)
		}
	}
	if text == "" {
		text = lookupEnv(environ, tokenVariable)
	}
	text = strings.TrimSpace(text)
	if lower := strings.ToLower(text); strings.HasPrefix(lower, "nsec1") || strings.HasPrefix(lower, "ncryptsec1") {
		return "", exitf(exitUsage, "what is given as token is a secret key, and was sent to nobody: give the token that pharos vantages invite prints")
	}
	return Secret(text), nil
}

// enrol makes this machine a vantage of the core, and keeps that.
func (v *vantageCmd) enrol(ctx context.Context, c *command, conf *Config, file, core string, key nostr.Key, token Secret) (enrolment, error) {
	if token == "" {
		return enrolment{}, exitf(exitUsage, "this machine is not enrolled as a vantage yet (there is no %s): run pharos vantages invite NAME on the core, and here the command that it prints", file)
	}
	cfg := remote.Config{URL: core, Key: key, UserAgent: "pharos/" + versionText()}
	e, err := remote.Enrol(ctx, cfg, token.Reveal(), conf.networks())
	if err != nil {
		return enrolment{}, exitf(exitStart, "this machine could not be enrolled as a vantage of %s: %s", core, sentence(err))
	}
	place := enrolment{Core: core, Name: e.Name, Group: e.Group, Pubkey: key.Pubkey(), Enrolled: time.Now().UTC().Truncate(time.Second)}
	if err := place.save(file); err != nil {
		return enrolment{}, exitf(exitStart, "the enrolment cannot be kept in %s: %s; mend that and start again with the same token", file, reason(err))
	}
	c.log.Info("enrolled: later starts need no token", "file", file)
	return place, nil
}
