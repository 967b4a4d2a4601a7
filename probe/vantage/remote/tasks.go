package remote

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/wire"
)

// tasksEvery is how often the core is asked for changes at the most.
const tasksEvery = 5 * time.Second

// taskList is the list of tasks as the core last told it.
type taskList struct {
	mu      sync.Mutex
	version uint64 // 0 = none yet
	etag    string
	relays  map[monitor.RelayURL]monitor.Task
	rules   wire.Rules
	asked   time.Time // when the core last answered, with its monotonic part
}

// Tasks returns what the core wants watched: all of it, unless known is the
// newest version. It asks the core every 5 s at the most, for what changed only.
// LastSeq is also above what waits in the spool. While the core is away the error
// is monitor.ErrUnavailable.
func (c *Core) Tasks(ctx context.Context, _ string, known uint64) (monitor.Tasks, error) {
	t := &c.tasks
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-c.revoked:
		return monitor.Tasks{}, ErrRevoked
	default:
	}
	if t.version == 0 || time.Since(t.asked) >= tasksEvery {
		if wait := c.asking.wait(time.Now()); wait > 0 {
			return monitor.Tasks{}, fmt.Errorf("%w: the core is asked again in %s", monitor.ErrUnavailable, wait.Round(time.Second))
		}
		if err := c.ask(ctx, t); err != nil {
			return monitor.Tasks{}, fmt.Errorf("fetch tasks: %w", err)
		}
	}
	out := monitor.Tasks{Version: t.version, LastSeq: max(c.spool.newest(), c.newestStored())}
	if known != t.version {
		out.Relays = make([]monitor.Task, 0, len(t.relays))
		for _, u := range slices.Sorted(maps.Keys(t.relays)) {
			out.Relays = append(out.Relays, t.relays[u])
		}
	}
	return out, nil
}

// ask brings t up to date. Its caller holds the list's lock.
func (c *Core) ask(ctx context.Context, t *taskList) error {
	got, fresh, err := c.fetch(ctx, t.version, t.etag)
	if err == nil && fresh != nil && fresh.Base != 0 && fresh.Base != t.version {
		c.cfg.Log.Debug("tasks changed from a version that is not ours: fetching all", "base", fresh.Base, "ours", t.version)
		got, fresh, err = c.fetch(ctx, 0, "")
		if err == nil && (fresh == nil || fresh.Base != 0) {
			err = fmt.Errorf("%w: the core answers with changes where the whole list was asked for", monitor.ErrUnavailable)
		}
	}
	c.heard(&c.asking, err)
	if err != nil {
		return err
	}
	t.asked = time.Now()
	if fresh == nil {
		return nil // not modified
	}
	c.mu.Lock()
	c.stored = max(c.stored, fresh.LastSeq)
	c.stats.Skew = time.Since(fresh.ServerTime)
	c.told.skew = c.told.skew && c.stats.Skew.Abs() > skewMost
	c.mu.Unlock()
	t.apply(fresh, got.etag)
	if fresh.Rules != t.rules {
		t.rules = fresh.Rules
		if c.cfg.OnRules != nil {
			c.cfg.OnRules(fresh.Rules)
		}
	}
	return nil
}

// apply takes over a list or changes of it.
func (t *taskList) apply(fresh *wire.Tasks, etag string) {
	if fresh.Base == 0 || t.relays == nil {
		t.relays = make(map[monitor.RelayURL]monitor.Task, len(fresh.Set))
	}
	for _, u := range fresh.Removed {
		delete(t.relays, u)
	}
	for _, s := range fresh.Set {
		t.relays[s.Relay] = s
	}
	t.version, t.etag = fresh.Version, etag
}

// fetch asks for tasks: all of them, or what changed since a version; fresh is
// nil when nothing did.
func (c *Core) fetch(ctx context.Context, since uint64, etag string) (_ *reply, fresh *wire.Tasks, _ error) {
	r := request{method: http.MethodGet, url: c.base + "/tasks", headers: map[string]string{}}
	if since > 0 {
		r.url += "?since=" + strconv.FormatUint(since, 10)
		if etag != "" && !strings.ContainsAny(etag, "\r\n") {
			r.headers["If-None-Match"] = etag
		}
	}
	got, err := c.cfg.do(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	if got.status == http.StatusNotModified && since > 0 {
		return got, nil, nil
	}
	fresh = new(wire.Tasks)
	return got, fresh, c.understood(got, fresh)
}
