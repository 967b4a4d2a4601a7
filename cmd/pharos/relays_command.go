package main

import (
	"context"
	"fmt"
	"strings"
)

// relaysCmd holds the commands on the relays of a running core.
type relaysCmd struct {
	Import      relaysImportCmd      `cmd:"" help:"Judge each line of a list, and watch the good ones from now on."`
	List        relaysListCmd        `cmd:"" help:"List the relays that are watched."`
	Add         relaysAddCmd         `cmd:"" help:"Watch relays from now on."`
	Remove      relaysRemoveCmd      `cmd:"" help:"No longer watch relays, until somebody names them again."`
	Exclude     relaysExcludeCmd     `cmd:"" help:"Never probe relays, whoever names them."`
	Include     relaysIncludeCmd     `cmd:"" help:"End an exclusion."`
	Check       relaysCheckCmd       `cmd:"" help:"Probe relays now, from every vantage."`
	Reset       relaysResetCmd       `cmd:"" help:"Forget the records of relays: unknown, and eligible."`
	Pause       relaysPauseCmd       `cmd:"" help:"Do not probe relays for a while."`
	Resume      relaysResumeCmd      `cmd:"" help:"End a pause."`
	Maintenance relaysMaintenanceCmd `cmd:"" help:"Declare a time in which what relays do is not held against them."`
	Release     relaysReleaseCmd     `cmd:"" help:"Let departures go that were held back."`
}

// adminRequest is the body of what an operator asks of the API (api.md,
// Operators); each path takes some of it.
type adminRequest struct {
	Add    []string `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
	Relays []string `json:"relays,omitempty"`
	From   string   `json:"from,omitempty"`
	For    string   `json:"for,omitempty"`
	Resume bool     `json:"resume,omitempty"`
	All    bool     `json:"all,omitempty"`
	Note   string   `json:"note,omitempty"`
}

// adminResults is the answer: what came of each relay.
type adminResults struct {
	Results []adminResult `json:"results"`
}

type adminResult struct {
	Input  string `json:"input"`
	URL    string `json:"url"`
	Done   bool   `json:"done"`
	Reason string `json:"reason"`
}

// relayArgs are the relays that a command names.
type relayArgs struct {
	URLs []string `arg:"" name:"url" help:"Relay URLs."`
}

// noteFlag says why, for the record that is kept of what operators do.
type noteFlag struct {
	Note string `help:"Why, in a line, for the record."`
}

type (
	relaysAddCmd struct {
		relayArgs
		noteFlag
	}
	relaysRemoveCmd struct {
		relayArgs
		noteFlag
	}
	relaysExcludeCmd struct {
		relayArgs
		noteFlag
	}
	relaysIncludeCmd struct {
		relayArgs
		noteFlag
	}
	relaysCheckCmd struct{ relayArgs }
	relaysResetCmd struct {
		relayArgs
		noteFlag
	}
	relaysPauseCmd struct {
		relayArgs
		noteFlag
		For Duration `required:"" help:"How long: 30m, 12h, 2d."`
	}
	relaysResumeCmd struct {
		relayArgs
		noteFlag
	}
	relaysMaintenanceCmd struct {
		relayArgs
		noteFlag
		For  Duration `required:"" help:"How long: 30m, 12h, 2d."`
		From string   `help:"When it begins, such as 2006-01-02T15:04:05Z; by default now."`
	}
	relaysReleaseCmd struct {
		URLs []string `arg:"" optional:"" name:"url" help:"Relay URLs."`
		All  bool     `help:"All of them."`
		noteFlag
	}
)

// The commands are one request each.

func (k *relaysAddCmd) Run(ctx context.Context, c *command) error {
	return c.steer(ctx, "relays", adminRequest{Add: k.URLs, Note: k.Note}, "added")
}

func (k *relaysRemoveCmd) Run(ctx context.Context, c *command) error {
	return c.steer(ctx, "relays", adminRequest{Remove: k.URLs, Note: k.Note}, "removed")
}

func (k *relaysExcludeCmd) Run(ctx context.Context, c *command) error {
	return c.steer(ctx, "exclude", adminRequest{Add: k.URLs, Note: k.Note}, "excluded")
}

func (k *relaysIncludeCmd) Run(ctx context.Context, c *command) error {
	return c.steer(ctx, "exclude", adminRequest{Remove: k.URLs, Note: k.Note}, "no longer excluded")
}

func (k *relaysCheckCmd) Run(ctx context.Context, c *command) error {
	return c.steer(ctx, "check", adminRequest{Relays: k.URLs}, "will be probed now")
}

func (k *relaysResetCmd) Run(ctx context.Context, c *command) error {
	return c.steer(ctx, "reset", adminRequest{Relays: k.URLs, Note: k.Note}, "its records are forgotten")
}

func (k *relaysPauseCmd) Run(ctx context.Context, c *command) error {
	return c.steer(ctx, "pause", adminRequest{Relays: k.URLs, For: k.For.D().String(), Note: k.Note}, "paused for "+k.For.String())
}

func (k *relaysMaintenanceCmd) Run(ctx context.Context, c *command) error {
	return c.steer(ctx, "maintenance", adminRequest{Relays: k.URLs, From: k.From, For: k.For.D().String(), Note: k.Note}, "in maintenance for "+k.For.String())
}

func (k *relaysResumeCmd) Run(ctx context.Context, c *command) error {
	return c.steer(ctx, "pause", adminRequest{Relays: k.URLs, Resume: true, Note: k.Note}, "no longer paused")
}

func (k *relaysReleaseCmd) Run(ctx context.Context, c *command) error {
	if k.All == (len(k.URLs) > 0) {
		return exitf(exitUsage, "name the relays to release, or --all")
	}
	return c.steer(ctx, "release", adminRequest{Relays: k.URLs, All: k.All, Note: k.Note}, "released")
}

// steer sends one request of an operator's and prints what came of each relay.
// The exit status is 1 when nothing was done at all.
func (c *command) steer(ctx context.Context, path string, body adminRequest, done string) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	core, err := c.core(cfg, true)
	if err != nil {
		return err
	}
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	var answer adminResults
	if err := core.post(ctx, "/v1/admin/"+path, body, &answer); err != nil {
		return err
	}
	if len(answer.Results) == 0 { // a release of all, and none is held
		_, err := fmt.Fprintln(c.stdout, "there was nothing to do")
		return err
	}
	changed := false
	for _, r := range answer.Results {
		name := r.URL
		if name == "" {
			name = redact(r.Input)
		}
		says := done
		if !r.Done {
			says = r.Reason
		}
		changed = changed || r.Done
		if _, err := fmt.Fprintf(c.stdout, "%s: %s\n", name, says); err != nil {
			return err
		}
	}
	if !changed {
		return exitf(exitBad, "nothing was changed")
	}
	return nil
}

type configReloadCmd struct{}

// Run makes the running core read its configuration again and prints which keys
// changed.
func (configReloadCmd) Run(ctx context.Context, c *command) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	core, err := c.core(cfg, true)
	if err != nil {
		return err
	}
	var answer struct {
		Changed     []string `json:"changed"`
		NeedRestart []string `json:"need_restart"`
	}
	if err := core.post(ctx, "/v1/admin/reload", struct{}{}, &answer); err != nil {
		return err
	}
	if len(answer.Changed)+len(answer.NeedRestart) == 0 {
		_, err = fmt.Fprintln(c.stdout, "nothing changed")
		return err
	}
	if len(answer.Changed) > 0 {
		_, err = fmt.Fprintln(c.stdout, "changed: "+strings.Join(answer.Changed, ", "))
	}
	if len(answer.NeedRestart) > 0 && err == nil {
		_, err = fmt.Fprintln(c.stdout, "only after a restart: "+strings.Join(answer.NeedRestart, ", "))
	}
	return err
}
