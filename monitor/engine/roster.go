package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// Registry keeps which vantages on other machines there are. Its errors are
// postgres.Store's.
type Registry interface {
	Invite(ctx context.Context, inv monitor.Invitation) error
	Invitations(ctx context.Context, now time.Time) ([]monitor.Invitation, error)
	Redeem(ctx context.Context, in monitor.Enrolment) (monitor.Enrolled, error)
	Revoke(ctx context.Context, name, actor string, at time.Time) error
}

var errNoRegistry = fmt.Errorf("%w: this core has no vantages on other machines", monitor.ErrNotFound)

func (e *Engine) registry() Registry {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.cfg.Registry
}

// newVantage is one that has told nothing yet.
func newVantage(v monitor.Vantage, now time.Time) *vantage {
	v.Group = cmp.Or(v.Group, v.Name)
	return &vantage{Vantage: v, observer: monitor.NewObserver(now)}
}

// muster makes the list of vantages at the start: the configuration's, and those
// on other machines that are enrolled. What the configuration names no longer
// does not count.
func (e *Engine) muster(stored []monitor.Vantage, now time.Time) {
	known := make(map[string]monitor.Vantage, len(stored))
	for _, v := range stored {
		known[v.Name] = v
	}
	own := map[string]bool{}
	for _, v := range e.cfg.Vantages {
		own[v.Name] = true
		if old, ok := known[v.Name]; ok {
			v.LastSeq, v.Enrolled = old.LastSeq, old.Enrolled
		}
		if v.Enrolled.IsZero() {
			v.Enrolled = now
		}
		e.vantages = append(e.vantages, newVantage(v, now))
	}
	for _, v := range stored {
		switch {
		case !v.Remote() || own[v.Name]:
		case v.Revoked:
			e.revoked = append(e.revoked, v)
		default:
			e.vantages = append(e.vantages, newVantage(v, now))
		}
	}
}

// own reports whether a vantage of this name belongs to this process.
func (e *Engine) own(name string) bool {
	return slices.ContainsFunc(e.cfg.Vantages, func(v monitor.Vantage) bool { return v.Name == name })
}

// Vantage returns a vantage on another machine, revoked or not. It returns
// ErrNotFound for any other name.
func (e *Engine) Vantage(name string) (monitor.Vantage, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if i := e.vantage(name); i >= 0 && e.vantages[i].Remote() {
		return e.judged(e.vantages[i], time.Now()), nil
	}
	if i := slices.IndexFunc(e.revoked, func(v monitor.Vantage) bool { return v.Name == name }); i >= 0 {
		return e.revoked[i], nil
	}
	return monitor.Vantage{}, fmt.Errorf("%w: no vantage named %q is enrolled from another machine", monitor.ErrNotFound, name)
}

// Invite keeps an invitation, in place of an open one of the same name. Without
// a group it gets that of the vantage of this name, else its name. ErrInvalid: a
// name or group cannot be such; ErrConflict: the name is that of a vantage of
// this process, or of one in another group.
func (e *Engine) Invite(ctx context.Context, inv monitor.Invitation) (monitor.Invitation, error) {
	if err := monitor.CheckVantageName(inv.Name); err != nil {
		return inv, fmt.Errorf("invite: %w name: %w", monitor.ErrInvalid, err)
	}
	if inv.Group != "" {
		if err := monitor.CheckVantageName(inv.Group); err != nil {
			return inv, fmt.Errorf("invite: %w group: %w", monitor.ErrInvalid, err)
		}
	}
	e.turn.Lock()
	defer e.turn.Unlock()
	if e.cfg.Registry == nil {
		return inv, fmt.Errorf("invite: %w", errNoRegistry)
	}
	if e.own(inv.Name) {
		return inv, fmt.Errorf("invite: %w: %s is the name of a vantage of this process (vantages in the configuration): choose another", monitor.ErrConflict, inv.Name)
	}
	old, err := e.Vantage(inv.Name)
	switch {
	case err != nil:
		inv.Group = cmp.Or(inv.Group, inv.Name)
	case inv.Group != "" && inv.Group != old.Group && !old.Revoked:
		return inv, fmt.Errorf("invite: %w: %s is enrolled in the group %s: revoke it first, or keep the group", monitor.ErrConflict, inv.Name, old.Group)
	default:
		inv.Group = cmp.Or(inv.Group, old.Group)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := e.cfg.Registry.Invite(ctx, inv); err != nil {
		return inv, fmt.Errorf("invite: %w", err)
	}
	e.log.Info("vantage invited", "vantage", inv.Name, "group", inv.Group, "actor", inv.Actor)
	return inv, nil
}

// Invitations returns the open ones, by name. It asks the store.
func (e *Engine) Invitations(ctx context.Context) ([]monitor.Invitation, error) {
	r := e.registry()
	if r == nil {
		return nil, nil
	}
	return r.Invitations(ctx, time.Now())
}

// Enrol takes up an invitation: from now on the vantage's batches are taken, by
// its new key alone, and its votes count. The same machine may ask again. A
// vantage that comes back goes on with its stored records. Its errors are the
// store's Redeem's; after each of them nothing has changed.
func (e *Engine) Enrol(ctx context.Context, in monitor.Enrolment) (monitor.Vantage, error) {
	e.turn.Lock()
	defer e.turn.Unlock()
	e.ingest.Lock()
	defer e.ingest.Unlock()
	if e.cfg.Registry == nil {
		return monitor.Vantage{}, fmt.Errorf("enrol a vantage: %w", errNoRegistry)
	}
	if err := e.begin(ctx); err != nil {
		return monitor.Vantage{}, fmt.Errorf("enrol a vantage: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	for _, v := range e.cfg.Vantages { // which the configuration may have named after the invitation
		in.Reserved = append(in.Reserved, v.Name)
	}
	got, err := e.cfg.Registry.Redeem(ctx, in)
	if err != nil {
		return monitor.Vantage{}, fmt.Errorf("enrol a vantage: %w", err)
	}
	v, now := got.Vantage, time.Now()
	if !e.admit(got, now) {
		return v, nil // again
	}
	e.log.Info("vantage enrolled", "vantage", v.Name, "group", v.Group, "networks", v.Networks, "records", len(got.Seen))
	e.show(now)
	return v, nil
}

// admit puts an enrolled vantage among those that count; it reports false where
// it is there already.
func (e *Engine) admit(got monitor.Enrolled, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := got.Vantage
	if i := e.vantage(v.Name); i >= 0 {
		if e.vantages[i].Pubkey == v.Pubkey {
			return false
		}
		e.dismiss(i)
	}
	e.revoked = slices.DeleteFunc(e.revoked, func(r monitor.Vantage) bool { return r.Name == v.Name })
	nv := newVantage(v, now)
	e.vantages = append(e.vantages, nv)
	for _, r := range e.relays {
		old, ok := got.Seen[r.URL]
		if ok {
			old = e.resume(nv, r, old, now)
		}
		r.seen = append(r.seen, old)
	}
	e.sweep = true
	return true
}

// Revoke ends a vantage's enrolment at once: nothing that it said counts any
// longer, and nothing more is taken from it. An open invitation of that name is
// withdrawn too. ErrNotFound: there is neither; ErrConflict: it is of this
// process.
func (e *Engine) Revoke(ctx context.Context, name, actor string) error {
	e.turn.Lock()
	defer e.turn.Unlock()
	e.ingest.Lock()
	defer e.ingest.Unlock()
	if e.cfg.Registry == nil {
		return fmt.Errorf("revoke: %w", errNoRegistry)
	}
	if e.own(name) {
		return fmt.Errorf("revoke: %w: %s is a vantage of this process: take it out of vantages in the configuration", monitor.ErrConflict, name)
	}
	if err := e.begin(ctx); err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	now := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := e.cfg.Registry.Revoke(ctx, name, actor, now); err != nil {
		return err
	}
	e.mu.Lock()
	i := e.vantage(name)
	if i >= 0 {
		v := e.vantages[i].Vantage
		v.Revoked = true
		e.revoked = append(e.revoked, v)
		e.dismiss(i)
	}
	e.mu.Unlock()
	e.log.Info("vantage revoked", "vantage", name, "actor", actor)
	if i >= 0 {
		e.show(now)
	}
	return nil
}

// dismiss takes the vantage at index i out of those that count, with all that it
// saw. Its caller holds mu.
func (e *Engine) dismiss(i int) {
	e.vantages = slices.Delete(e.vantages, i, i+1)
	for _, r := range e.relays {
		left := r.seen[i].Address
		r.seen = slices.Delete(r.seen, i, i+1)
		if e.cfg.Locate != nil && left.IsValid() && !slices.ContainsFunc(r.seen, func(v monitor.VantageRelay) bool { return v.Address == left }) {
			e.place(r, e.cfg.Locate)
		}
	}
	e.sweep = true
}

// Skewed notes that a vantage on another machine signs with a clock that is off
// by so much (theirs − ours): none of its batches is taken, and its votes do not
// count.
func (e *Engine) Skewed(name string, skew time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.vantage(name)
	if i < 0 || !e.vantages[i].Remote() {
		return
	}
	v := e.vantages[i]
	if limit := e.cfg.Corroboration.MaxClockSkew; v.Skew.Abs() <= limit && skew.Abs() > limit {
		e.log.Warn("vantage's clock is wrong: its votes do not count until it is set", "vantage", name, "skew", skew.Round(time.Second).String())
		e.sweep = true
	}
	v.Skew = skew
}
