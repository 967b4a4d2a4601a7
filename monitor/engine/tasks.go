package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// What is remembered of former lists of tasks: so many changed relays, in so
// many versions.
const (
	historyRelays   = 20_000
	historyVersions = 1_000
)

// taskList is the list of tasks with its recent history. The zero value is an
// empty list.
type taskList struct {
	tasks   []monitor.Task // by URL; readers hold it, it is never changed
	version uint64
	// history holds what each version changed, the oldest first; the one before
	// its first is the oldest that can be brought up to date.
	history []taskChange
	size    int // relays in history
}

type taskChange struct {
	version uint64
	relays  []monitor.RelayURL
}

// replace puts a new list in force.
func (l *taskList) replace(tasks []monitor.Task) {
	c := taskChange{version: l.version + 1, relays: changedTasks(l.tasks, tasks)}
	l.tasks, l.version = tasks, c.version
	l.history = append(l.history, c)
	l.size += len(c.relays)
	drop := 0
	for drop < len(l.history) && (l.size > historyRelays || len(l.history)-drop > historyVersions) {
		l.size -= len(l.history[drop].relays)
		drop++
	}
	l.history = slices.Delete(l.history, 0, drop)
}

// changedTasks lists the relays whose task differs between two lists by URL.
func changedTasks(before, after []monitor.Task) []monitor.RelayURL {
	var out []monitor.RelayURL
	for len(before) > 0 || len(after) > 0 {
		order := 0
		switch {
		case len(before) == 0:
			order = 1
		case len(after) == 0:
			order = -1
		default:
			order = cmp.Compare(before[0].Relay, after[0].Relay)
		}
		switch {
		case order < 0:
			out, before = append(out, before[0].Relay), before[1:]
		case order > 0:
			out, after = append(out, after[0].Relay), after[1:]
		default:
			if a, b := before[0], after[0]; a.Candidate != b.Candidate || !a.PausedUntil.Equal(b.PausedUntil) {
				out = append(out, b.Relay)
			}
			before, after = before[1:], after[1:]
		}
	}
	return out
}

// since returns what changed after a version, ok = false where that is not
// remembered or hardly shorter than the whole list.
func (l *taskList) since(version uint64) (set []monitor.Task, removed []monitor.RelayURL, ok bool) {
	if version == l.version {
		return nil, nil, true
	}
	i := slices.IndexFunc(l.history, func(c taskChange) bool { return c.version == version+1 })
	if i < 0 {
		return nil, nil, false
	}
	var urls []monitor.RelayURL
	for _, c := range l.history[i:] {
		urls = append(urls, c.relays...)
	}
	slices.Sort(urls)
	urls = slices.Compact(urls)
	if 2*len(urls) > len(l.tasks) {
		return nil, nil, false
	}
	for _, u := range urls {
		j, found := slices.BinarySearchFunc(l.tasks, u, func(t monitor.Task, u monitor.RelayURL) int { return cmp.Compare(t.Relay, u) })
		if found {
			set = append(set, l.tasks[j])
		} else {
			removed = append(removed, u)
		}
	}
	return set, removed, true
}

// Tasks returns what a vantage should watch. It returns ErrNotFound for a name
// that is not enrolled.
func (e *Engine) Tasks(_ context.Context, name string, known uint64) (monitor.Tasks, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	i := e.vantage(name)
	if i < 0 {
		return monitor.Tasks{}, notEnrolled(name)
	}
	t := monitor.Tasks{Version: e.tasks.version, LastSeq: e.vantages[i].LastSeq}
	if known != t.Version {
		t.Relays = e.tasks.tasks
	}
	return t, nil
}

// TaskChanges returns what changed of the tasks since a version, or all of them
// where that is 0, not remembered, or of another process. No two processes on
// one database give the same version to different lists, unless the clock was
// set back to the microsecond. It returns ErrNotFound for a name that is not
// enrolled.
func (e *Engine) TaskChanges(name string, since uint64) (monitor.TaskChanges, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	i := e.vantage(name)
	if i < 0 {
		return monitor.TaskChanges{}, notEnrolled(name)
	}
	out := monitor.TaskChanges{
		Version: e.tasks.version, LastSeq: e.vantages[i].LastSeq,
		Cadence: e.cfg.Cadence, Liveness: e.cfg.Liveness,
	}
	if set, removed, ok := e.tasks.since(since); ok && since > 0 {
		out.Base, out.Set, out.Removed = since, set, removed
	} else {
		out.Set = e.tasks.tasks
	}
	return out, nil
}

func notEnrolled(name string) error {
	return fmt.Errorf("%w: no vantage named %q is enrolled", monitor.ErrNotFound, name)
}

// retask makes the list of tasks anew: all watched relays but those that a twin
// stands for.
func (e *Engine) retask() {
	tasks := make([]monitor.Task, 0, len(e.relays))
	e.pauseEnds = time.Time{}
	for _, r := range e.relays {
		if r.twin == "" {
			tasks = append(tasks, monitor.Task{Relay: r.URL, Candidate: r.Candidate, PausedUntil: r.PausedUntil})
		}
		if p := r.PausedUntil; !p.IsZero() && (e.pauseEnds.IsZero() || p.Before(e.pauseEnds)) {
			e.pauseEnds = p
		}
	}
	e.tasks.replace(tasks)
}
