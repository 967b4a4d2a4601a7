package publisher

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

const (
	// perSecond is how many of our reports one second may hold: paging with
	// until breaks where one second fills a page (reports.md 8, 16).
	perSecond = 19
	// reachBack is how far before now a report may be dated (reports.md 8).
	reachBack = 5 * time.Minute
	// A report is renewed at dueCentre ± dueSpread of the announced frequency,
	// by a hash of its URL: always before 0.75 of it (reports.md 10), with
	// room for the decision round and for finding a second.
	dueCentre = 0.67
	dueSpread = 0.10

	snapshotMin = 60 * time.Second // between two snapshots (reports.md, Snapshot event)
	snapshotMax = 15 * time.Minute // a snapshot is renewed at this age
	// serviceMax is the age at which 10166, 0 and 10002 are signed anew.
	serviceMax = 24 * time.Hour
)

// Config is what the events say about this monitor.
type Config struct {
	Name, Contact string
	// PublicURL (wss://…) is announced in the relay list; without it ListenURL
	// (ws://address:port/) is, which only helps on this machine.
	PublicURL, ListenURL string
	// Frequency is the announced one, whole seconds ≥ 1 s; Expiration is how
	// long a report lives, ≥ 2 × Frequency (reports.md 11).
	Frequency, Expiration time.Duration
	// SnapshotLife is how long the list may be used after its newest check
	// (live.max_age); zero = 4 h.
	SnapshotLife time.Duration
	Timeout      time.Duration // a whole probe's limit
	// Checks are the checks really made, out of open, read, write, auth,
	// nip11, dns, geo; any other word is refused.
	Checks   []string
	Networks []monitor.Network // that our own vantages reach; those of the reports are told too
	Geohash  string            // where this monitor is, "" = not said
	Log      *slog.Logger      // nil = silent
}

// Publisher decides what is signed when, and holds what is current. Its
// methods may be called at the same time from several goroutines.
type Publisher struct {
	key nostr.Key

	mu       sync.Mutex
	cfg      Config
	reports  map[monitor.RelayURL]*report
	holders  map[string]monitor.RelayURL // who has the report, by folded URL
	last     map[monitor.RelayURL]int64  // created_at of the newest report ever signed, also of withdrawn ones
	seconds  map[int64]int               // reports dated in that second, of those that a new one may be dated in
	newest   int64                       // the latest now of Reports
	snapshot *monitor.SignedEvent
	members  []monitor.RelayURL // of snapshot
	service  map[int]*announced
}

// report is the current one of a relay.
type report struct {
	ev  *monitor.SignedEvent
	due time.Time // when to renew it
	// print is of everything but the measured times; src the source that last
	// came to it, to see cheaply that nothing changed. A report from the store
	// has no source yet.
	print  fingerprint
	src    monitor.ReportSource
	hasSrc bool
}

type announced struct {
	ev    *monitor.SignedEvent
	print fingerprint
}

// New returns a publisher that goes on from the stored events. It signs and
// verifies one event before anything else. Stored events of another key are a
// monitor.ErrConflict; a stored event that cannot be read or
// verified is left out and so signed anew. A wrong cfg is a monitor.ErrInvalid.
func New(cfg Config, key nostr.Key, stored []monitor.SignedEvent) (*Publisher, error) {
	cfg, err := cfg.ready()
	if err != nil {
		return nil, err
	}
	probe := nostr.Event{Kind: nostr.KindReport, CreatedAt: 1, Tags: nostr.Tags{{"d", "wss://self.test/"}}, Content: "é\""}
	if err := key.Sign(&probe); err != nil {
		return nil, fmt.Errorf("try the service key: %w", err)
	}
	if err := nostr.Verify(&probe); err != nil {
		return nil, fmt.Errorf("try the service key: what it signed does not verify: %w", err)
	}
	p := &Publisher{
		cfg:     cfg,
		key:     key,
		reports: make(map[monitor.RelayURL]*report),
		holders: make(map[string]monitor.RelayURL),
		last:    make(map[monitor.RelayURL]int64),
		seconds: make(map[int64]int),
		service: make(map[int]*announced),
	}
	for i := range stored {
		s := &stored[i]
		if s.Pubkey != key.Pubkey() {
			return nil, fmt.Errorf("%w: the database holds reports of another key (%s, ours is %s); give back the key file it was made with, or start with --new-key",
				monitor.ErrConflict, nostr.Npub(s.Pubkey), key.Npub())
		}
		p.restore(s)
	}
	return p, nil
}

// ready checks c and returns a copy of it, complete.
func (c *Config) ready() (Config, error) {
	if err := c.validate(); err != nil {
		return Config{}, err
	}
	out := *c
	out.Checks = slices.Clone(c.Checks)
	out.Networks = slices.Clone(c.Networks)
	if out.SnapshotLife == 0 {
		out.SnapshotLife = 4 * time.Hour
	}
	if out.Log == nil {
		out.Log = slog.New(slog.DiscardHandler)
	}
	return out, nil
}

func (c *Config) validate() error {
	var errs []error
	add := func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("publish: %w: "+format, append([]any{monitor.ErrInvalid}, a...)...))
	}
	if c.Frequency < time.Second || c.Frequency%time.Second != 0 {
		add("the frequency is %s; it must be whole seconds, at least 1s", c.Frequency)
	}
	if c.Expiration < 2*c.Frequency {
		add("the expiration is %s; it must be at least twice the frequency (%s)", c.Expiration, c.Frequency)
	}
	for _, w := range c.Checks {
		if !slices.Contains(checkNames, w) {
			add("%q is no check; known are %s", w, strings.Join(checkNames, ", "))
		}
	}
	return errors.Join(errs...)
}

// Configure makes cfg hold for what is signed from now on: events that it
// changes are signed anew at the next Announcements, and reports fall due by
// the new frequency. What is signed stays as it is, also its expiration. A wrong
// cfg is a monitor.ErrInvalid, and nothing changes. Of cfg, Log is ignored.
func (p *Publisher) Configure(cfg Config) error {
	cfg, err := cfg.ready()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	cfg.Log = p.cfg.Log
	p.cfg = cfg
	for _, r := range p.reports {
		r.due = p.due(r.ev)
	}
	return nil
}

// restore takes one event of our own from the store.
func (p *Publisher) restore(s *monitor.SignedEvent) {
	ev, err := nostr.Decode(s.JSON)
	if err != nil || nostr.Verify(ev) != nil {
		return
	}
	at := int64(ev.CreatedAt)
	switch ev.Kind {
	case nostr.KindReport:
		url := monitor.RelayURL(s.D)
		if at <= p.last[url] {
			return
		}
		p.last[url] = at
		p.seconds[at]++
		p.reports[url] = &report{ev: s, due: p.due(s), print: fingerprintOf(ev)}
		p.holders[fold(url)] = url
	case nostr.KindRelaySet:
		if s.D == snapshotD && (p.snapshot == nil || p.snapshot.CreatedAt.Unix() < at) {
			p.snapshot, p.members = s, membersOf(ev)
		}
	case nostr.KindAnnouncement, nostr.KindProfile, nostr.KindRelayList:
		if a := p.service[ev.Kind]; a == nil || a.ev.CreatedAt.Unix() < at {
			p.service[ev.Kind] = &announced{s, fingerprintOf(ev)}
		}
	}
}

// wanted is a report that should be signed now.
type wanted struct {
	src    *monitor.ReportSource
	ev     nostr.Event
	print  fingerprint
	urgent bool  // changed, first, or older than announced: before those that are merely due
	prev   int64 // created_at of the newest report of this relay, 0 = none
}

// Reports takes online relays, those without a report always among them, and
// returns the reports that were newly signed: first ones, those whose content other than the measured times
// changed, those of relays that returned, and those that are due. As many are
// signed as find a second by reports.md 8; the others keep what they have and
// wait for the next call, the longest waiting first.
//
// Of URLs that differ only in the case of the host or in trailing slashes
// (reports.md 1) one has the report: the one that has it already, else the
// first in byte order, which is the one without the slash. The others get none
// until it is withdrawn or has expired.
//
// A source without rtt-open is passed over: there is no report without it.
func (p *Publisher) Reports(now time.Time, sources []monitor.ReportSource) []monitor.SignedEvent {
	p.mu.Lock()
	defer p.mu.Unlock()

	list := p.wanted(now, sources)
	slices.SortFunc(list, func(a, b wanted) int {
		if a.urgent != b.urgent {
			if a.urgent {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.prev, b.prev), cmp.Compare(a.src.URL, b.src.URL))
	})

	sec := now.Unix()
	oldest := sec - int64(reachBack/time.Second)
	p.trim(sec, oldest)
	var out []monitor.SignedEvent
	for i := range list {
		w := &list[i]
		// The counts of this call's seconds only grow, so the latest second
		// with room only moves back.
		for sec > oldest && p.seconds[sec] >= perSecond {
			sec--
		}
		lower := max(oldest, w.prev+1, min(w.src.OnlineSince.Unix(), now.Unix()))
		if sec < lower || p.seconds[sec] >= perSecond {
			continue // no second: it waits
		}
		w.ev.CreatedAt = nostr.Timestamp(sec)
		w.ev.Tags = append(w.ev.Tags, expirationTag(sec+int64(p.cfg.Expiration/time.Second)))
		s := p.sign(&w.ev)
		if s == nil {
			continue
		}
		p.seconds[sec]++
		p.last[w.src.URL] = sec
		p.reports[w.src.URL] = &report{ev: s, due: p.due(s), print: w.print, src: *w.src, hasSrc: true}
		p.holders[fold(w.src.URL)] = w.src.URL
		out = append(out, *s)
	}
	return out
}

// trim forgets the counts of seconds that are too far back to be used. After
// the clock went back they may be wanted again: then they are counted anew.
func (p *Publisher) trim(now, oldest int64) {
	if now < p.newest {
		clear(p.seconds)
		for _, r := range p.reports {
			p.seconds[r.ev.CreatedAt.Unix()]++
		}
	}
	p.newest = now
	for s := range p.seconds {
		if s < oldest {
			delete(p.seconds, s)
		}
	}
}

// wanted picks out what should be signed, and settles collisions.
func (p *Publisher) wanted(now time.Time, sources []monitor.ReportSource) []wanted {
	var list []wanted
	// Of those without a report, who may get one, by folded URL.
	winner := make(map[string]monitor.RelayURL)
	for i := range sources {
		u := sources[i].URL
		if p.current(u, now) != nil {
			continue
		}
		k := fold(u)
		if h, ok := p.holders[k]; ok && p.current(h, now) != nil {
			continue
		}
		if w, ok := winner[k]; !ok || u < w {
			winner[k] = u
		}
	}
	for i := range sources {
		src := &sources[i]
		r := p.current(src.URL, now)
		if r == nil && winner[fold(src.URL)] != src.URL {
			continue
		}
		if src.RTTOpen < 1 {
			continue
		}
		w := wanted{src: src, prev: p.last[src.URL], urgent: true}
		switch {
		case r == nil:
			w.ev, w.print = buildReport(src)
		case returned(&r.src, src):
			w.ev, w.print = buildReport(src)
		case r.hasSrc && sameSource(&r.src, src):
			if now.Before(r.due) {
				continue
			}
			w.ev, w.print = buildReport(src)
			w.urgent = p.late(r, now)
		default:
			w.ev, w.print = buildReport(src)
			if w.print == r.print {
				r.src, r.hasSrc = *src, true
				if now.Before(r.due) {
					continue
				}
				w.urgent = p.late(r, now)
			}
		}
		list = append(list, w)
	}
	return list
}

// returned: the present run of successes is another than the one reported on.
// OnlineSince does not survive a restart, so the first one seen is no return.
func returned(old, src *monitor.ReportSource) bool {
	return !old.OnlineSince.IsZero() && !src.OnlineSince.IsZero() && !old.OnlineSince.Equal(src.OnlineSince)
}

// sameSource: nothing but measured times differs, seen without building it.
func sameSource(a, b *monitor.ReportSource) bool {
	return a.Info == b.Info && a.Network == b.Network &&
		a.AuthSeen == b.AuthSeen && a.PaymentSeen == b.PaymentSeen && a.RestrictedWrites == b.RestrictedWrites &&
		a.Country == b.Country && a.Geohash == b.Geohash && a.OnlineSince.Equal(b.OnlineSince) &&
		slices.Equal(a.DisprovedNIPs, b.DisprovedNIPs)
}

// due is when a report is to be renewed: by the frequency, and well before it
// expires if it was signed when a shorter one held.
func (p *Publisher) due(ev *monitor.SignedEvent) time.Time {
	every := p.cfg.Frequency
	if !ev.Expires.IsZero() {
		every = min(every, ev.Expires.Sub(ev.CreatedAt)/2)
	}
	share := dueCentre * (1 + dueSpread*(2*hashUnit(ev.D)-1))
	return ev.CreatedAt.Add(time.Duration(share * float64(every)))
}

// current is the report on a relay, nil when there is none or it has expired.
func (p *Publisher) current(url monitor.RelayURL, now time.Time) *report {
	if r := p.reports[url]; r != nil && live(r.ev, now) {
		return r
	}
	return nil
}

func (p *Publisher) late(r *report, now time.Time) bool {
	return now.Sub(r.ev.CreatedAt) >= p.cfg.Frequency*3/4
}

func live(s *monitor.SignedEvent, now time.Time) bool {
	return s.Expires.IsZero() || now.Unix() < s.Expires.Unix()
}

// Withdraw forgets the reports on relays that left the online set. A later
// report on one of them is still dated after the withdrawn one.
func (p *Publisher) Withdraw(urls []monitor.RelayURL) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range urls {
		delete(p.reports, u)
		if k := fold(u); p.holders[k] == u {
			delete(p.holders, k)
		}
	}
}

// Snapshot is the signed online set: urls in any order, generation and
// newestCheck as they are to be announced. A new one is signed when the
// members changed, at most every 60 s, and every 15 min; else it is the current
// one. Ask only while the list is usable.
func (p *Publisher) Snapshot(now time.Time, generation uint64, newestCheck time.Time, urls []monitor.RelayURL) *monitor.SignedEvent {
	members := slices.Clone(urls)
	slices.Sort(members)
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.snapshot; s != nil {
		age := now.Unix() - s.CreatedAt.Unix()
		changed := !slices.Equal(members, p.members)
		keep := age < int64(snapshotMin/time.Second) || (!changed && age < int64(snapshotMax/time.Second))
		// An expired one (after a pause in which the list was not usable) is
		// replaced at once, if the clock allows a later date.
		if keep && (live(s, now) || age < 1) {
			return s
		}
	}
	until := newestCheck
	if until.IsZero() {
		until = now
	}
	e := buildSnapshot(members, generation, newestCheck, until.Add(p.cfg.SnapshotLife))
	e.CreatedAt = nostr.Timestamp(now.Unix())
	if s := p.sign(&e); s != nil {
		p.snapshot, p.members = s, members
	}
	return p.snapshot
}

// Announcements returns those of 10166, 0 and 10002 that were newly signed:
// whose content changed or that are older than a day. Service has the current
// ones.
func (p *Publisher) Announcements(now time.Time) []monitor.SignedEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []monitor.SignedEvent
	cfg := p.cfg
	cfg.Networks = p.networks()
	for _, e := range []nostr.Event{buildAnnouncement(&cfg), buildProfile(&p.cfg), buildRelayList(&p.cfg)} {
		print := fingerprintOf(&e)
		if a := p.service[e.Kind]; a != nil {
			age := now.Unix() - a.ev.CreatedAt.Unix()
			// Never dated at or before the one it replaces: a reader would
			// keep the old one.
			if age < 1 || (a.print == print && age < int64(serviceMax/time.Second)) {
				continue
			}
		}
		e.CreatedAt = nostr.Timestamp(now.Unix())
		s := p.sign(&e)
		if s == nil {
			continue
		}
		p.service[e.Kind] = &announced{s, print}
		out = append(out, *s)
	}
	return out
}

// networks are those that our own vantages reach, and those that we report on,
// which vantages on other machines may reach alone.
func (p *Publisher) networks() []monitor.Network {
	out := slices.Clone(p.cfg.Networks)
	for url := range p.reports {
		if n := url.Network(); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// sign returns nil when signing failed, which is the operator's work: nothing
// is current that was not signed, so the next call tries again.
func (p *Publisher) sign(e *nostr.Event) *monitor.SignedEvent {
	if err := p.key.Sign(e); err != nil {
		p.cfg.Log.Error("an event could not be signed", "kind", e.Kind, "d", e.Tags.GetD(), "error", err)
		return nil
	}
	s, err := nostr.Encode(e)
	if err != nil {
		p.cfg.Log.Error("an event could not be encoded", "kind", e.Kind, "d", e.Tags.GetD(), "error", err)
		return nil
	}
	return s
}
