package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// vantagesCmd holds the commands on the vantages of a running core.
type vantagesCmd struct {
	Invite vantagesInviteCmd `cmd:"" help:"Invite another machine: prints the one command to run there."`
	List   vantagesListCmd   `cmd:"" help:"List the vantages and the open invitations."`
	Revoke vantagesRevokeCmd `cmd:"" help:"End a vantage's enrolment: nothing that it says counts any longer."`
}

type (
	vantagesInviteCmd struct {
		Name  string `arg:"" help:"What the vantage is to be called; the name of an enrolled one gives that one a new key."`
		Group string `help:"Vantages of one provider or network share a group, and have one vote; by default the name."`
		JSON  bool   `name:"json" help:"One JSON object: name, group, token, command, expires."`
	}
	vantagesListCmd struct {
		JSON bool `name:"json" help:"One JSON object: vantages, invitations."`
	}
	vantagesRevokeCmd struct {
		Name string `arg:"" help:"The vantage; an open invitation of that name is withdrawn too."`
	}
)

// vantagesRequest is what an operator asks of /v1/admin/vantages.
type vantagesRequest struct {
	Invite *vantageInvitation `json:"invite,omitempty"`
	Revoke string             `json:"revoke,omitempty"`
}

type vantageInvitation struct {
	Name  string `json:"name"`
	Group string `json:"group,omitempty"`
}

// invitedVantage is the answer to an invitation. The token in it can be used once.
type invitedVantage struct {
	Name    string `json:"name"`
	Group   string `json:"group"`
	Token   string `json:"token"`
	Command string `json:"command"`
	Expires string `json:"expires"`
}

const vantagesAPI = "/v1/admin/vantages"

// steering is a client of the running core that may command, until a signal
// comes.
func (c *command) steering(ctx context.Context) (*coreClient, context.Context, context.CancelFunc, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, nil, nil, err
	}
	core, err := c.core(cfg, true)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	return core, ctx, stop, nil
}

// Run invites, and prints what to run on the other machine.
func (k *vantagesInviteCmd) Run(ctx context.Context, c *command) error {
	core, ctx, stop, err := c.steering(ctx)
	if err != nil {
		return err
	}
	defer stop()
	var got invitedVantage
	if err := core.post(ctx, vantagesAPI, vantagesRequest{Invite: &vantageInvitation{k.Name, k.Group}}, &got); err != nil {
		return err
	}
	if k.JSON {
		return c.printJSON(got)
	}
	if _, err := fmt.Fprintf(c.stdout, "Run this on the other machine, once, before %s:\n\n    %s\n", got.Expires, got.Command); err != nil {
		return err
	}
	if here := addressHere(got.Command); here != "" {
		_, err = fmt.Fprintf(c.stderr, "pharos: %s is an address of this machine alone: set public_url, or name in its place where the other machine reaches this one\n", here)
	}
	return err
}

// addressHere is the core's address in a command, where only this machine can
// reach it; "" = it is another one.
func addressHere(command string) string {
	_, rest, _ := strings.Cut(command, " --core ")
	address, _, _ := strings.Cut(rest, " ")
	if u, err := url.Parse(address); err == nil && isLoopback(u.Hostname()+":0") {
		return address
	}
	return ""
}

func (c *command) printJSON(v any) error {
	e := json.NewEncoder(c.stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// listedVantages is what the tables tell.
type listedVantages struct {
	Vantages []struct {
		Name         string   `json:"name"`
		Group        string   `json:"group"`
		Remote       bool     `json:"remote"`
		Revoked      bool     `json:"revoked"`
		Eligible     bool     `json:"eligible"`
		Impairments  []string `json:"impairments"`
		LastSeen     string   `json:"last_seen"`
		SkewMS       int64    `json:"skew_ms"`
		LagMS        int64    `json:"lag_ms"`
		Disagreement *float64 `json:"disagreement_ratio"`
	} `json:"vantages"`
	Invitations []struct {
		Name    string `json:"name"`
		Group   string `json:"group"`
		Expires string `json:"expires"`
	} `json:"invitations"`
}

const vantagesFormat = "%-16s  %-12s  %-11s  %-20s  %8s  %8s  %s\n"

// Run prints all vantages.
func (k *vantagesListCmd) Run(ctx context.Context, c *command) error {
	core, ctx, stop, err := c.steering(ctx)
	if err != nil {
		return err
	}
	defer stop()
	var raw json.RawMessage
	if err := core.get(ctx, vantagesAPI, nil, &raw); err != nil {
		return err
	}
	if k.JSON {
		_, err := c.stdout.Write(append(slices.Clip([]byte(raw)), '\n'))
		return err
	}
	var all listedVantages
	if err := json.Unmarshal(raw, &all); err != nil {
		return exitf(exitBad, "an answer is not as Pharos writes it: is another program listening there?")
	}
	var b strings.Builder
	fmt.Fprintf(&b, vantagesFormat, "NAME", "GROUP", "VOTES", "LAST SEEN", "LAG", "AGAINST", "")
	for _, v := range all.Vantages {
		against := "-"
		if v.Disagreement != nil {
			against = fmt.Sprintf("%.1f %%", 100**v.Disagreement)
		}
		votes, remarks := "no", v.Impairments
		switch {
		case v.Revoked:
			votes = "revoked"
		case v.Eligible:
			votes = "yes"
		case v.LastSeen == "":
			remarks = append(remarks, "never heard")
		}
		if v.Remote {
			remarks = append(remarks, "on another machine")
		}
		if skew := time.Duration(v.SkewMS) * time.Millisecond; skew.Abs() >= time.Minute {
			remarks = append(remarks, "its clock is off by "+skew.Round(time.Second).String())
		}
		fmt.Fprintf(&b, vantagesFormat, v.Name, v.Group, votes, cmp.Or(v.LastSeen, "-"),
			(time.Duration(v.LagMS) * time.Millisecond).String(), against, strings.Join(remarks, ", "))
	}
	for _, inv := range all.Invitations {
		fmt.Fprintf(&b, vantagesFormat, inv.Name, inv.Group, "invited", "-", "-", "-", "until "+inv.Expires)
	}
	_, err = c.stdout.Write([]byte(b.String()))
	return err
}

// Run revokes one.
func (k *vantagesRevokeCmd) Run(ctx context.Context, c *command) error {
	core, ctx, stop, err := c.steering(ctx)
	if err != nil {
		return err
	}
	defer stop()
	var got struct {
		Name string `json:"name"`
	}
	if err := core.post(ctx, vantagesAPI, vantagesRequest{Revoke: k.Name}, &got); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "%s: revoked\n", got.Name)
	return err
}
