package monitor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

func TestCommandValidate(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	one := []monitor.RelayURL{"wss://a.example/"}
	window := func(from, until time.Time) monitor.Command {
		return monitor.Command{Kind: monitor.CommandMaintenance, Relays: one, From: from, Until: until}
	}
	pause := func(until time.Time) monitor.Command {
		return monitor.Command{Kind: monitor.CommandPause, Relays: one, Until: until}
	}
	for name, c := range map[string]struct {
		command monitor.Command
		says    string // "" = it is fine
	}{
		"add":                      {monitor.Command{Kind: monitor.CommandAdd, Relays: one, Note: "a friend's, ünïcode"}, ""},
		"release of all":           {monitor.Command{Kind: monitor.CommandRelease}, ""},
		"nothing named":            {monitor.Command{Kind: monitor.CommandRemove}, "name at least one relay"},
		"opt out":                  {monitor.Command{Kind: monitor.CommandOptOut, Relays: one, Actor: strings.Repeat("aB", 32)}, ""},
		"a stranger opts out":      {monitor.Command{Kind: monitor.CommandOptOut, Relays: one}, "pubkey"},
		"a short key opts out":     {monitor.Command{Kind: monitor.CommandOptOut, Relays: one, Actor: strings.Repeat("ab", 31)}, "pubkey"},
		"the token opts out":       {monitor.Command{Kind: monitor.CommandOptOut, Relays: one, Actor: "token"}, "pubkey"},
		"opt out of nothing":       {monitor.Command{Kind: monitor.CommandOptOut, Actor: strings.Repeat("ab", 32)}, "name at least one relay"},
		"no such command":          {monitor.Command{Kind: "destroy", Relays: one}, `there is no command "destroy"`},
		"no command":               {monitor.Command{Relays: one}, `there is no command ""`},
		"two lines":                {monitor.Command{Kind: monitor.CommandAdd, Relays: one, Note: "a\nb"}, "one line"},
		"no UTF-8":                 {monitor.Command{Kind: monitor.CommandAdd, Relays: one, Note: "\xff"}, "UTF-8"},
		"longest note":             {monitor.Command{Kind: monitor.CommandAdd, Relays: one, Note: strings.Repeat("x", monitor.MaxNote)}, ""},
		"too long a note":          {monitor.Command{Kind: monitor.CommandAdd, Relays: one, Note: strings.Repeat("x", monitor.MaxNote+1)}, "500 bytes"},
		"pause":                    {pause(now.Add(time.Second)), ""},
		"longest pause":            {pause(now.Add(30 * day)), ""},
		"pause without end":        {pause(time.Time{}), "future"},
		"pause until now":          {pause(now), "future"},
		"too long a pause":         {pause(now.Add(30*day + time.Second)), "30 days"},
		"window from now":          {window(time.Time{}, now.Add(time.Hour)), ""},
		"window that has begun":    {window(now.Add(-time.Hour), now.Add(time.Hour)), ""},
		"window without end":       {window(now, time.Time{}), "after from"},
		"window turned round":      {window(now.Add(2*time.Hour), now.Add(time.Hour)), "after from"},
		"empty window":             {window(now.Add(time.Hour), now.Add(time.Hour)), "after from"},
		"window that is over":      {window(now.Add(-time.Hour), now), "over already"},
		"longest window":           {window(now, now.Add(90*day)), ""},
		"too long a window":        {window(now, now.Add(90*day+time.Second)), "90 days long"},
		"window in a year":         {window(now.Add(364*day), now.Add(365*day)), ""},
		"window in more than that": {window(now.Add(364*day), now.Add(365*day+time.Second)), "365 days from now"},
	} {
		err := c.command.Validate(now)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (!errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want ErrInvalid that says %q", name, err, c.says)
		}
	}
}

func TestCommandWindow(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := monitor.Command{Until: now.Add(time.Hour), Note: "disks", Actor: "aa"}
	if got, want := c.Window(now), (monitor.Maintenance{From: now, Until: c.Until, Note: "disks", Actor: "aa"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	c.From = now.Add(time.Minute)
	if got := c.Window(now).From; !got.Equal(c.From) {
		t.Errorf("from %s, want %s", got, c.From)
	}
}
