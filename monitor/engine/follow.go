package engine

import (
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// followSlack is how long a vantage's own schedule and its batches have before
// the core asks.
const followSlack = 10 * time.Second

// followUp asks a vantage for the relays whose records were forgotten here: by
// its own record, which says dead, it would come back in an hour, and the streak
// of the new record would end in every such gap. It is over once the new record
// has come to online or dead. Its caller holds mu.
func (e *Engine) followUp(i int, now time.Time) {
	v := e.vantages[i]
	for u := range v.follow {
		r := e.byURL[u]
		if r == nil || !v.Reaches(u.Network()) {
			delete(v.follow, u)
			continue
		}
		seen := &r.seen[i]
		if s := seen.Record.State; s == monitor.StateOnline || s == monitor.StateDead {
			delete(v.follow, u)
			continue
		}
		asked := !seen.Expedited.IsZero()
		switch {
		case r.PausedUntil.After(now), asked && now.Sub(seen.Expedited) < monitor.ExpeditedTimeout:
			continue
		case seen.NextDue.IsZero() && asked, !seen.NextDue.IsZero() && now.Sub(seen.NextDue) >= followSlack:
			seen.Expedited = now
			v.expedite = append(v.expedite, u)
		}
	}
}
