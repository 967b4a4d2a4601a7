package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/api"
	"github.com/pharos-nostr/pharos/monitor"
)

// reloadLimit bounds a reload: it reads files and stores the relays once.
const reloadLimit = 30 * time.Second

// Reload reads the configuration again and swaps all of it, or nothing. What
// only a restart can change keeps its value, and is named in the answer. The
// error is an *api.ReloadError when the configuration is wrong, and wraps
// monitor.ErrUnavailable while the store is away.
func (a *App) Reload(ctx context.Context) (api.Reloaded, error) {
	ctx, cancel := context.WithTimeout(ctx, reloadLimit)
	defer cancel()
	select {
	case a.changing <- struct{}{}:
		defer func() { <-a.changing }()
	case <-ctx.Done():
		return api.Reloaded{}, fmt.Errorf("%w: the start, or another reload, is under way", monitor.ErrUnavailable)
	}

	out, err := a.reload(ctx)
	switch {
	case err != nil:
		a.log.Error("configuration not reloaded: nothing changed", "error", err)
	case len(out.NeedRestart) > 0:
		a.log.Warn("configuration reloaded; some keys wait for a restart", "changed", out.Changed, "need_restart", out.NeedRestart)
	default:
		a.log.Info("configuration reloaded", "changed", out.Changed)
	}
	return out, err
}

func (a *App) reload(ctx context.Context) (api.Reloaded, error) {
	next, err := a.reread()
	if err != nil {
		return api.Reloaded{}, reloadError(err)
	}
	old := a.config()
	out := api.Reloaded{Changed: []string{}, NeedRestart: []string{}}
	for _, key := range old.changedKeys(next) {
		if needsRestart(key) {
			out.NeedRestart = append(out.NeedRestart, key)
		} else {
			out.Changed = append(out.Changed, key)
		}
	}
	next.keepFixed(old)
	list, err := next.relays()
	if err != nil {
		return api.Reloaded{}, &api.ReloadError{Problems: []string{sentence(err)}}
	}
	if !sameRelays(a.list, list) && !slices.Contains(out.Changed, "relays") && !slices.Contains(out.Changed, "relay_files") {
		out.Changed = append(out.Changed, "relay_files") // the same names, other lines
	}
	fresh, err := a.plans(next)
	if err != nil {
		return api.Reloaded{}, &api.ReloadError{Problems: []string{sentence(err)}}
	}
	places, err := a.places.next(next, old)
	if err != nil {
		return api.Reloaded{}, &api.ReloadError{Problems: []string{sentence(err)}}
	}

	// From here on only the store can refuse, and it is asked first.
	if err := a.engine.Configure(ctx, a.engineConfig(next, list)); err != nil {
		return api.Reloaded{}, fmt.Errorf("store the relays: %w", err)
	}
	a.list = list
	a.sayWhatIsWatched(next, list)
	if err := errors.Join(
		a.publisher.Configure(a.publisherConfig(next)),
		a.relay.Configure(a.relayOptions(next)),
		a.follow(fresh),
		a.followDiscovery(next),
	); err != nil { // what was validated before is refused only on the way down
		a.log.Error("a part goes on with its old configuration", "error", err)
	}
	a.places.take(places)
	a.api.Configure(a.apiSettings(next))
	a.cfg.Store(next)
	a.route(next)
	return out, nil
}

// reloadError lists every problem of a configuration.
func reloadError(err error) error {
	var problems Problems
	if !errors.As(err, &problems) {
		return &api.ReloadError{Problems: []string{sentence(err)}}
	}
	texts := make([]string, len(problems))
	for i, p := range problems {
		p.Excerpt = "" // the file is not everybody's to read
		texts[i] = redact(p.String())
	}
	return &api.ReloadError{Problems: texts}
}

// keepFixed takes over from old what only a restart can change.
func (c *Config) keepFixed(old *Config) {
	fixed := map[string]reflect.Value{}
	leaves(reflect.ValueOf(*old), "", func(key string, v reflect.Value) { fixed[key] = v })
	leaves(reflect.ValueOf(c).Elem(), "", func(key string, v reflect.Value) {
		if needsRestart(key) {
			v.Set(fixed[key])
		}
	})
}

func sameRelays(a, b *relayList) bool {
	return slices.EqualFunc(a.Relays, b.Relays, func(x, y monitor.WatchedRelay) bool {
		return x.URL == y.URL && x.Source == y.Source
	})
}
