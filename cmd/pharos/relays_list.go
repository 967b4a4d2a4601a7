package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

type relaysListCmd struct {
	JSON      bool     `name:"json" help:"One JSON object per line and relay."`
	State     string   `help:"Only relays in this state: unknown, online, offline or dead."`
	Mark      []string `help:"Only relays with this mark, such as flapping or held; several must all hold."`
	Network   string   `help:"Only relays of this network: clearnet, tor, i2p or loki."`
	Source    string   `help:"Only relays whose URL came from there, such as config, file or operator."`
	Candidate bool     `help:"Only candidates: found, and not yet seen alive."`
	Paused    bool     `help:"Only relays that are paused now."`
	Excluded  bool     `help:"The excluded relays instead, which are not watched."`
	Contains  string   `help:"Only relays whose URL holds this text."`
}

// listedRelay is what the table tells of a relay.
type listedRelay struct {
	URL           string   `json:"url"`
	State         string   `json:"state"`
	Since         string   `json:"since"`
	Marks         []string `json:"marks"`
	Cause         string   `json:"cause"`
	Source        string   `json:"source"`
	Candidate     bool     `json:"candidate"`
	Excluded      bool     `json:"excluded"`
	PausedUntil   string   `json:"paused_until"`
	RTTOpenMS     int      `json:"rtt_open_ms"`
	VantagesUp    int      `json:"vantages_up"`
	VantagesTotal int      `json:"vantages_total"`
}

// Run pages through all relays of the running core and prints them as they
// come.
func (k *relaysListCmd) Run(ctx context.Context, c *command) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	core, err := c.core(cfg, false)
	if err != nil {
		return err
	}
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	query := k.query()
	for first := true; ; first = false {
		var page struct {
			NextCursor string            `json:"next_cursor"`
			Relays     []json.RawMessage `json:"relays"`
		}
		if err := core.get(ctx, "/v1/relays", query, &page); err != nil {
			return err
		}
		if err := k.print(c, page.Relays, first); err != nil {
			return err
		}
		if page.NextCursor == "" {
			return nil
		}
		if page.NextCursor == query.Get("cursor") {
			return exitf(exitBad, "%s gives the same page again and again", core.base)
		}
		query.Set("cursor", page.NextCursor)
	}
}

func (k *relaysListCmd) query() url.Values {
	q := url.Values{"limit": {"1000"}}
	for name, value := range map[string]string{"state": k.State, "network": k.Network, "source": k.Source, "q": k.Contains} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, value := range map[string]bool{"candidate": k.Candidate, "paused": k.Paused, "excluded": k.Excluded} {
		if value {
			q.Set(name, "true")
		}
	}
	for _, m := range k.Mark {
		q.Add("mark", m)
	}
	return q
}

const listedFormat = "%-8s  %-20s  %7s  %5s  %-9s  %s\n"

func (k *relaysListCmd) print(c *command, relays []json.RawMessage, heading bool) error {
	var b strings.Builder
	if heading && !k.JSON {
		fmt.Fprintf(&b, listedFormat, "STATE", "SINCE", "RTT", "UP", "SOURCE", "URL")
	}
	for _, raw := range relays {
		if k.JSON {
			b.Write(raw)
			b.WriteByte('\n')
			continue
		}
		var r listedRelay
		if err := json.Unmarshal(raw, &r); err != nil {
			return exitf(exitBad, "an answer is not as Pharos writes it: is another program listening there?")
		}
		rtt := "-"
		if r.RTTOpenMS > 0 {
			rtt = strconv.Itoa(r.RTTOpenMS) + " ms"
		}
		fmt.Fprintf(&b, listedFormat, r.State, cmp.Or(r.Since, "-"), rtt,
			fmt.Sprintf("%d/%d", r.VantagesUp, r.VantagesTotal), cmp.Or(r.Source, "-"), r.URL+r.remarks())
	}
	_, err := c.stdout.Write([]byte(b.String()))
	return err
}

// remarks is what else is to be said of a relay.
func (r *listedRelay) remarks() string {
	words := r.Marks
	if r.Cause != "" {
		words = append(words, r.Cause)
	}
	if r.Candidate {
		words = append(words, "candidate")
	}
	if r.Excluded {
		words = append(words, "excluded")
	}
	if r.PausedUntil != "" {
		words = append(words, "paused until "+r.PausedUntil)
	}
	if len(words) == 0 {
		return ""
	}
	return "  (" + strings.Join(words, ", ") + ")"
}
