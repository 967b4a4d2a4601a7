package monitor_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	urlA   monitor.RelayURL = "wss://a.example.com/"
	urlB   monitor.RelayURL = "wss://b.example.com/"
	urlC   monitor.RelayURL = "wss://c.example.com/"
	urlTor monitor.RelayURL = "ws://" + onion + "/"
)

// epoch is the time 0 of the vectors.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// ms returns the time n milliseconds after the epoch.
func ms(n int64) time.Time { return epoch.Add(time.Duration(n) * time.Millisecond) }

// sec returns the time n seconds after the epoch.
func sec(n int64) time.Time { return ms(n * 1000) }

// observed is one observer with its records.
type observed struct {
	l       monitor.Liveness
	v       *monitor.Observer
	records map[monitor.RelayURL]monitor.Record
}

// newObserved starts an hour before the epoch, so that nothing of the start
// stands in the way of a vector.
func newObserved() *observed {
	return &observed{monitor.DefaultLiveness(), monitor.NewObserver(sec(-3600)), map[monitor.RelayURL]monitor.Record{}}
}

func (o *observed) step(relay monitor.RelayURL, outcome monitor.Outcome, started, at time.Time) monitor.Effect {
	r, effect := o.l.Step(o.records[relay], o.v, relay, outcome, started, at)
	o.records[relay] = r
	return effect
}

func (o *observed) fail(relay monitor.RelayURL, at time.Time) monitor.Effect {
	return o.step(relay, monitor.OutcomeFailed, at, at)
}

func (o *observed) succeed(relay monitor.RelayURL, at time.Time) monitor.Effect {
	return o.step(relay, monitor.OutcomeOK, at, at)
}

// failAt lets relay A fail at each of the seconds; all must count.
func (o *observed) failAt(t *testing.T, seconds ...int64) monitor.Record {
	t.Helper()
	for _, s := range seconds {
		if effect := o.fail(urlA, sec(s)); effect != monitor.EffectCounted {
			t.Fatalf("failure at %d s: %v", s, effect)
		}
	}
	return o.records[urlA]
}

// die kills relay A in the fastest way (S11): dead at 750 s.
func (o *observed) die(t *testing.T) monitor.Record {
	t.Helper()
	o.failAt(t, 0, 30, 90, 210, 450)
	o.succeed(urlB, sec(700))
	r := o.failAt(t, 750)
	if r.State != monitor.StateDead {
		t.Fatalf("not dead: %+v", r)
	}
	return r
}

func wantState(t *testing.T, r monitor.Record, state monitor.State, count int, backoff time.Time) {
	t.Helper()
	if r.State != state || r.FailureCount != count || !r.BackoffUntil.Equal(backoff) {
		t.Errorf("state %v, count %d, backoff until %v; want %v, %d, %v", r.State, r.FailureCount, r.BackoffUntil, state, count, backoff)
	}
}

func TestStepOutcomes(t *testing.T) {
	for outcome, want := range map[monitor.Outcome]monitor.Effect{
		monitor.OutcomeNone:       monitor.EffectNoEvidence,
		monitor.OutcomeOK:         monitor.EffectSucceeded,
		monitor.OutcomeRefused:    monitor.EffectSucceeded,
		monitor.OutcomeRestricted: monitor.EffectNoEvidence,
		monitor.OutcomeFailed:     monitor.EffectCounted,
		monitor.OutcomeSkipped:    monitor.EffectNoEvidence,
		monitor.OutcomeUnclear:    monitor.EffectNoEvidence,
	} {
		o := newObserved()
		o.failAt(t, 0)
		before, vantage := o.records[urlA], *o.v
		if got := o.step(urlA, outcome, sec(60), sec(60)); got != want {
			t.Errorf("%v: %v, want %v", outcome, got, want)
		}
		if want == monitor.EffectNoEvidence && (o.records[urlA] != before || *o.v != vantage) {
			t.Errorf("%v changed %+v to %+v", outcome, before, o.records[urlA])
		}
	}
}

func TestS1Unknown(t *testing.T) {
	var r monitor.Record
	if r.State != monitor.StateUnknown || !r.Eligible(epoch) || !r.BackoffUntil.IsZero() {
		t.Errorf("zero record: %+v", r)
	}
}

func TestS2Eligible(t *testing.T) {
	o := newObserved()
	r := o.failAt(t, 0)
	for at, want := range map[int64]bool{0: false, 29_999: false, 30_000: true} {
		if got := r.Eligible(ms(at)); got != want {
			t.Errorf("offline at %d: %v", at, got)
		}
	}
	o = newObserved()
	r = o.die(t)
	for at, want := range map[int64]bool{750: false, 4349: false, 4350: true} {
		if got := r.Eligible(sec(at)); got != want {
			t.Errorf("dead at %d s: %v", at, got)
		}
	}
	o.succeed(urlA, sec(800))
	if !o.records[urlA].Eligible(sec(800)) {
		t.Error("online is not eligible")
	}
}

func TestS3Success(t *testing.T) {
	for name, prepare := range map[string]func(*observed){
		"unknown":               func(*observed) {},
		"online":                func(o *observed) { o.succeed(urlA, sec(1)) },
		"offline, in cool-down": func(o *observed) { o.failAt(t, 0, 30, 90, 210, 450, 750) },
		"offline, eligible":     func(o *observed) { o.failAt(t, 0) },
		"dead, in cool-down":    func(o *observed) { o.die(t) },
	} {
		o := newObserved()
		prepare(o)
		before := o.records[urlA]
		if effect := o.succeed(urlA, sec(800)); effect != monitor.EffectSucceeded {
			t.Errorf("%s: %v", name, effect)
		}
		want := monitor.Record{
			State: monitor.StateOnline, LastSuccess: sec(800), SessionSuccess: sec(800), OnlineSince: sec(800), LastFailure: before.LastFailure,
		}
		if before.State == monitor.StateOnline {
			want.OnlineSince = sec(1) // the run goes on
		}
		if diff := cmp.Diff(want, o.records[urlA]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	// What comes late does not move the newest backwards.
	o := newObserved()
	o.succeed(urlA, sec(10))
	o.succeed(urlA, sec(5))
	if r := o.records[urlA]; !r.LastSuccess.Equal(sec(10)) || !r.SessionSuccess.Equal(sec(10)) {
		t.Errorf("moved back: %+v", r)
	}
}

func TestOnlineSince(t *testing.T) {
	o := newObserved()
	o.succeed(urlA, sec(0))
	o.succeed(urlA, sec(300))
	o.step(urlA, monitor.OutcomeSkipped, sec(400), sec(400))
	o.v.SetNetworkAvailable(false, sec(450))
	o.fail(urlA, sec(460)) // ignored: the run goes on
	if r := o.records[urlA]; !r.OnlineSince.Equal(sec(0)) {
		t.Errorf("online since %v", r.OnlineSince)
	}
	o.v.SetNetworkAvailable(true, sec(470))
	o.failAt(t, 600)
	if r := o.records[urlA]; !r.OnlineSince.IsZero() {
		t.Errorf("offline, but online since %v", r.OnlineSince)
	}
	o.succeed(urlA, sec(700))
	if r := o.records[urlA]; !r.OnlineSince.Equal(sec(700)) {
		t.Errorf("online since %v", r.OnlineSince)
	}
}

func TestS4Ignored(t *testing.T) {
	o := newObserved()
	o.fail(urlA, ms(0))
	o.fail(urlA, ms(5_000))
	o.fail(urlA, ms(29_999))
	wantState(t, o.records[urlA], monitor.StateOffline, 1, ms(30_000))

	for name, prepare := range map[string]func(*observed) monitor.RelayURL{
		"a: no URL":            func(*observed) monitor.RelayURL { return "" },
		"a: no relay's URL":    func(*observed) monitor.RelayURL { return "https://a.example.com/" },
		"b: no network":        func(o *observed) monitor.RelayURL { o.v.SetNetworkAvailable(false, sec(50)); return urlA },
		"b: hidden":            func(o *observed) monitor.RelayURL { o.v.SetHidden(true, sec(50)); return urlA },
		"c: in the grace":      func(o *observed) monitor.RelayURL { o.v.Recovered(sec(50)); return urlA },
		"d: in the cool-down":  func(o *observed) monitor.RelayURL { o.failAt(t, 45); return urlA },
		"S22: success in time": func(o *observed) monitor.RelayURL { o.succeed(urlA, sec(60)); return urlA },
	} {
		o := newObserved()
		relay := prepare(o)
		before, vantage := o.records[relay], *o.v
		if effect := o.fail(relay, sec(60)); effect != monitor.EffectIgnored {
			t.Errorf("%s: %v", name, effect)
		}
		if o.records[relay] != before || *o.v != vantage {
			t.Errorf("%s: changed", name)
		}
	}
	// A success of no relay is none either.
	vantage := *o.v
	if effect := o.succeed("nostr.mom", sec(60)); effect != monitor.EffectIgnored || *o.v != vantage {
		t.Errorf("success without a URL: %v", effect)
	}
}

func TestS5FirstFailure(t *testing.T) {
	o := newObserved()
	r := o.failAt(t, 0)
	wantState(t, r, monitor.StateOffline, 1, sec(30))
	if !r.FirstFailure.Equal(sec(0)) || !r.LastFailure.Equal(sec(0)) || r.Corroborated {
		t.Errorf("%+v", r)
	}
	o = newObserved()
	o.succeed(urlA, sec(-10))
	wantState(t, o.failAt(t, 0), monitor.StateOffline, 1, sec(30))
}

func TestS6SharedSocket(t *testing.T) {
	o := newObserved()
	for range 50 {
		o.fail(urlA, sec(0))
	}
	wantState(t, o.records[urlA], monitor.StateOffline, 1, sec(30))
}

func TestS7Cooldown(t *testing.T) {
	l := monitor.DefaultLiveness()
	for n, want := range map[int]time.Duration{
		math.MinInt: 0, -1: 0, 0: 0, 1: 30 * time.Second, 2: time.Minute, 3: 2 * time.Minute, 4: 4 * time.Minute,
		5: 5 * time.Minute, 6: 5 * time.Minute, 63: 5 * time.Minute, 64: 5 * time.Minute, math.MaxInt: 5 * time.Minute,
	} {
		if got := l.Backoff(n); got != want {
			t.Errorf("Backoff(%d) = %v, want %v", n, got, want)
		}
	}
	l.BackoffMaxDelay = math.MaxInt64
	for n, want := range map[int]time.Duration{28: 30 * time.Second << 27, 29: 30 * time.Second << 28, 30: math.MaxInt64, math.MaxInt: math.MaxInt64} {
		if got := l.Backoff(n); got != want {
			t.Errorf("no maximum: Backoff(%d) = %v, want %v", n, got, want)
		}
	}
	l.BackoffMaxDelay = 10 * time.Second
	if got := l.Backoff(1); got != 10*time.Second {
		t.Errorf("base above the maximum: %v", got)
	}
	l.BackoffBaseDelay = 0
	if got := l.Backoff(math.MaxInt); got != 0 {
		t.Errorf("no base: %v", got)
	}
	o := newObserved()
	at := int64(0)
	for n, delay := range []int64{30, 60, 120, 240, 300, 300, 300} {
		wantState(t, o.failAt(t, at), monitor.StateOffline, n+1, sec(at+delay))
		at += delay
	}
	// Classified dead: the dead relay's delay.
	o = newObserved()
	wantState(t, o.die(t), monitor.StateDead, 6, sec(750+3600))
}

func TestS8Gap(t *testing.T) {
	o := newObserved()
	o.fail(urlA, ms(0))
	o.fail(urlA, ms(1_800_000))
	wantState(t, o.records[urlA], monitor.StateOffline, 2, ms(1_860_000))

	o = newObserved()
	o.fail(urlA, ms(0))
	o.fail(urlA, ms(1_800_001))
	wantState(t, o.records[urlA], monitor.StateOffline, 1, ms(1_830_001))
	if r := o.records[urlA]; !r.FirstFailure.Equal(ms(1_800_001)) {
		t.Errorf("streak begins %v", r.FirstFailure)
	}

	// A dead relay's streak goes on over any gap.
	o = newObserved()
	o.die(t)
	o.succeed(urlB, sec(100_000))
	wantState(t, o.failAt(t, 100_001), monitor.StateDead, 7, sec(103_601))
	if r := o.records[urlA]; !r.FirstFailure.Equal(sec(0)) {
		t.Errorf("streak begins %v", r.FirstFailure)
	}
	// A success and a recovery end it.
	o.succeed(urlA, sec(100_002))
	wantState(t, o.failAt(t, 100_003), monitor.StateOffline, 1, sec(100_033))
}

func TestS9Dead(t *testing.T) {
	// All conditions but one are met; other is when another relay succeeds.
	for name, c := range map[string]struct {
		failures []int64
		other    int64
		change   func(*monitor.Liveness)
		want     monitor.State
	}{
		"dead":             {[]int64{0, 200, 400, 600, 900}, 850, nil, monitor.StateDead},
		"exactly old":      {[]int64{0, 100, 200, 350, 600}, 550, nil, monitor.StateDead},
		"too young":        {[]int64{1, 100, 200, 350, 600}, 550, nil, monitor.StateOffline},
		"too few":          {[]int64{0, 300, 500, 900}, 850, nil, monitor.StateOffline},
		"not corroborated": {[]int64{0, 200, 400, 600, 900}, 839, nil, monitor.StateOffline},
		"other number":     {[]int64{0, 600}, 590, func(l *monitor.Liveness) { l.MaxFailuresBeforeDead = 2 }, monitor.StateDead},
		"other duration":   {[]int64{0, 200, 400, 600, 900}, 850, func(l *monitor.Liveness) { l.MinFailureDuration = 901 * time.Second }, monitor.StateOffline},
	} {
		o := newObserved()
		if c.change != nil {
			c.change(&o.l)
		}
		last := len(c.failures) - 1
		o.failAt(t, c.failures[:last]...)
		o.succeed(urlB, sec(c.other))
		delay := o.l.Backoff(len(c.failures))
		if c.want == monitor.StateDead {
			delay = o.l.DeadRetryDelay
		}
		t.Run(name, func(t *testing.T) {
			wantState(t, o.failAt(t, c.failures[last]), c.want, len(c.failures), sec(c.failures[last]).Add(delay))
		})
	}
}

func TestS10Corroborated(t *testing.T) {
	// The failures of the relay are at 0 and 100 s.
	for name, c := range map[string]struct {
		relay   monitor.RelayURL
		between func(*observed)
		want    bool
	}{
		"nothing":              {urlA, func(*observed) {}, false},
		"another relay":        {urlA, func(o *observed) { o.succeed(urlB, sec(90)) }, true},
		"refused is a success": {urlA, func(o *observed) { o.step(urlB, monitor.OutcomeRefused, sec(89), sec(90)) }, true},
		"restricted is none":   {urlA, func(o *observed) { o.step(urlB, monitor.OutcomeRestricted, sec(89), sec(90)) }, false},
		"at the window's edge": {urlA, func(o *observed) { o.succeed(urlB, sec(40)) }, true},
		"before the window":    {urlA, func(o *observed) { o.succeed(urlB, ms(39_999)) }, false},
		"in the same instant":  {urlA, func(o *observed) { o.succeed(urlB, sec(100)) }, true},
		"long after":           {urlA, func(o *observed) { o.succeed(urlB, ms(160_001)) }, false},
		"after a recovery":     {urlA, func(o *observed) { o.v.Recovered(sec(50)); o.succeed(urlB, ms(50_001)) }, true},
		"at a recovery":        {urlA, func(o *observed) { o.v.Recovered(sec(50)); o.succeed(urlB, sec(50)) }, false},
		"before a recovery":    {urlA, func(o *observed) { o.succeed(urlB, sec(49)); o.v.Recovered(sec(50)) }, false},
		"another network":      {urlA, func(o *observed) { o.succeed(urlTor, sec(90)) }, false},
		"clearnet for Tor":     {urlTor, func(o *observed) { o.succeed(urlA, sec(90)) }, false},
		"Tor for Tor":          {urlTor, func(o *observed) { o.succeed("ws://x."+urlTor[len("ws://"):], sec(90)) }, true},
		"canary":               {urlA, func(o *observed) { o.v.CanarySucceeded(sec(90)) }, true},
		"canary for Tor":       {urlTor, func(o *observed) { o.v.CanarySucceeded(sec(90)) }, false},
		"canary too old":       {urlA, func(o *observed) { o.v.CanarySucceeded(ms(39_999)) }, false},
		"canary in order": {urlA, func(o *observed) {
			o.v.CanarySucceeded(sec(90))
			o.v.CanarySucceeded(sec(10))
			o.v.CanarySucceeded(sec(11))
		}, true},
		"canary ahead":          {urlA, func(o *observed) { o.v.CanarySucceeded(sec(90)); o.v.CanarySucceeded(sec(170)) }, true},
		"canary never":          {urlA, func(o *observed) { o.v.CanarySucceeded(time.Time{}) }, false},
		"canary and recovery":   {urlA, func(o *observed) { o.v.CanarySucceeded(sec(49)); o.v.Recovered(sec(50)) }, false},
		"the newest is another": {urlA, func(o *observed) { o.succeed(urlB, sec(20)); o.succeed(urlC, sec(80)) }, true},
	} {
		o := newObserved()
		o.fail(c.relay, sec(0))
		c.between(o)
		if effect := o.fail(c.relay, sec(100)); effect != monitor.EffectCounted {
			t.Errorf("%s: %v", name, effect)
		}
		if got := o.records[c.relay].Corroborated; got != c.want {
			t.Errorf("%s: corroborated %v", name, got)
		}
	}

	// A relay never corroborates itself: it succeeds and fails again, and it is
	// the newest of all.
	o := newObserved()
	o.succeed(urlB, sec(-100))
	o.fail(urlA, sec(0))
	o.succeed(urlA, sec(50))
	o.fail(urlA, sec(60))
	if o.records[urlA].Corroborated {
		t.Error("corroborated by itself")
	}
	// And it does not hide another's success.
	o = newObserved()
	o.fail(urlA, sec(0))
	o.succeed(urlB, sec(40))
	o.succeed(urlA, sec(50))
	o.fail(urlA, sec(60))
	if !o.records[urlA].Corroborated {
		t.Error("hides another relay's success")
	}
	// What the construction saw is the past.
	o = newObserved()
	o.v = monitor.NewObserver(sec(90))
	o.fail(urlA, sec(0))
	o.succeed(urlB, sec(90))
	o.fail(urlA, sec(100))
	if o.records[urlA].Corroborated {
		t.Error("corroborated by a success at the construction")
	}
}

func TestS11FastestDeath(t *testing.T) {
	o := newObserved()
	for n, at := range []int64{0, 30, 90, 210, 450} {
		o.succeed(urlB, ms(at*1000-1)) // corroborated all the time
		r := o.failAt(t, at)
		if r.State != monitor.StateOffline || r.FailureCount != n+1 {
			t.Errorf("at %d s: %+v", at, r)
		}
		if o.fail(urlA, r.BackoffUntil.Add(-time.Millisecond)) != monitor.EffectIgnored {
			t.Errorf("counted before the cooldown of %d s is over", at)
		}
	}
	o.succeed(urlB, sec(700))
	wantState(t, o.failAt(t, 750), monitor.StateDead, 6, sec(4350))

	o = newObserved()
	o.failAt(t, 0, 30, 90, 210, 450)
	o.succeed(urlB, sec(689))
	wantState(t, o.failAt(t, 750), monitor.StateOffline, 6, sec(1050))
}

func TestS12SharedOutage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newObserved()
		n := rapid.IntRange(1, 12).Draw(t, "relays")
		relays := make([]monitor.RelayURL, n)
		for i := range relays {
			relays[i] = monitor.RelayURL(fmt.Sprintf("wss://r%d.example.com/", i))
			o.succeed(relays[i], sec(-rapid.Int64Range(1, 90).Draw(t, "last success")))
		}
		start := time.Duration(rapid.Int64Range(0, 30_000).Draw(t, "first failure")) * time.Millisecond
		for at, end := epoch.Add(start), sec(7*24*3600); at.Before(end); {
			var next time.Time
			for _, relay := range relays {
				o.fail(relay, at)
				r := o.records[relay]
				if r.State != monitor.StateOffline {
					t.Fatalf("%s is %v at %v", relay, r.State, at)
				}
				next = r.BackoffUntil
			}
			at = next.Add(time.Duration(rapid.Int64Range(0, 900).Draw(t, "late")) * time.Second)
		}
	})
}

func TestS13StaleSuccess(t *testing.T) {
	for success, want := range map[int64]monitor.State{449: monitor.StateOffline, 450: monitor.StateOffline, 451: monitor.StateDead} {
		o := newObserved()
		o.l.ConnectivityWindow = time.Hour
		o.failAt(t, 0, 30, 90, 210)
		if success < 450 {
			o.succeed(urlB, sec(success))
		}
		o.failAt(t, 450)
		if success >= 450 {
			o.succeed(urlB, sec(success))
		}
		if r := o.failAt(t, 750); r.State != want {
			t.Errorf("success at %d s: %v, want %v", success, r.State, want)
		}
	}
}

func TestS14UncorroboratedCountGrows(t *testing.T) {
	o := newObserved()
	at := int64(0)
	for n := 1; n <= 40; n++ {
		r := o.failAt(t, at)
		if r.State != monitor.StateOffline || r.FailureCount != n {
			t.Fatalf("failure %d: %+v", n, r)
		}
		at = int64(r.BackoffUntil.Sub(epoch) / time.Second)
	}
	o.succeed(urlB, sec(at-1))
	wantState(t, o.failAt(t, at), monitor.StateDead, 41, sec(at+3600))
}

func TestS15AfterDeath(t *testing.T) {
	o := newObserved()
	o.die(t)
	if o.fail(urlA, ms(4_349_999)) != monitor.EffectIgnored {
		t.Error("counted in the cooldown")
	}
	// Not corroborated any more: offline, with the ordinary cooldown.
	wantState(t, o.failAt(t, 4350), monitor.StateOffline, 7, sec(4650))
	// Corroborated again: dead again.
	o.succeed(urlB, sec(4640))
	wantState(t, o.failAt(t, 4650), monitor.StateDead, 8, sec(8250))
	o.succeed(urlA, sec(8250))
	wantState(t, o.records[urlA], monitor.StateOnline, 0, time.Time{})
}

func TestS22OverlappingRequest(t *testing.T) {
	for _, c := range []struct {
		success, started, failed int64
		want                     monitor.Effect
	}{
		{10, 5, 20, monitor.EffectIgnored},  // began before the success
		{10, 10, 20, monitor.EffectIgnored}, // began with it
		{10, 11, 20, monitor.EffectCounted},
	} {
		o := newObserved()
		o.succeed(urlA, sec(c.success))
		if got := o.step(urlA, monitor.OutcomeFailed, sec(c.started), sec(c.failed)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	// Only a success of this session, and of this relay.
	o := newObserved()
	o.succeed(urlB, sec(10))
	o.records[urlA] = monitor.Record{State: monitor.StateOnline, LastSuccess: sec(10)}
	if got := o.step(urlA, monitor.OutcomeFailed, sec(5), sec(20)); got != monitor.EffectCounted {
		t.Errorf("stored success: %v", got)
	}
}

func TestS24TwoNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// The two newest of distinct relays tell the same as all records do.
		o := newObserved()
		relays := []monitor.RelayURL{urlA, urlB, urlC, "wss://d.example.com/", urlTor, "ws://x." + urlTor[len("ws://"):]}
		at := epoch
		var recovered time.Time
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			at = at.Add(time.Duration(rapid.Int64Range(0, 40_000).Draw(t, "pause")) * time.Millisecond)
			relay := rapid.SampledFrom(relays).Draw(t, "relay")
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				o.v.Recovered(at)
				recovered = at
			case 1, 2, 3:
				o.succeed(relay, at)
			default:
				preceding := o.records[relay].LastFailure
				want := false
				for other, r := range o.records {
					s := r.SessionSuccess
					want = want || other != relay && other.Network() == relay.Network() &&
						s.After(recovered) && s.After(preceding) && at.Sub(s) <= o.l.ConnectivityWindow
				}
				if o.fail(relay, at) == monitor.EffectCounted && o.records[relay].Corroborated != want {
					t.Fatalf("%s at %v: corroborated %v", relay, at, !want)
				}
			}
		}
	})
}

func TestObserverNewestNeverMovesBack(t *testing.T) {
	o := newObserved()
	o.succeed(urlB, sec(90))
	o.succeed(urlC, sec(91))
	want := *o.v
	for _, relay := range []monitor.RelayURL{urlB, urlC, "wss://d.example.com/"} {
		o.succeed(relay, sec(10))
	}
	if *o.v != want {
		t.Errorf("%+v, want %+v", *o.v, want)
	}
}

func TestObserverClone(t *testing.T) {
	o := newObserved()
	before := *o.v
	c := o.v.Clone()
	c.SetHidden(true, sec(1))
	c.CanarySucceeded(sec(2))
	o.l.Step(monitor.Record{}, c, urlB, monitor.OutcomeOK, sec(3), sec(3))
	if *o.v != before || *c == before {
		t.Error("the clone is not apart")
	}
}

func TestS25Unavailable(t *testing.T) {
	for name, set := range map[string]func(*monitor.Observer, bool, time.Time) bool{
		"no network": func(v *monitor.Observer, on bool, at time.Time) bool { return v.SetNetworkAvailable(!on, at) },
		"hidden":     func(v *monitor.Observer, on bool, at time.Time) bool { return v.SetHidden(on, at) },
	} {
		o := newObserved()
		set(o.v, true, sec(0))
		if o.fail(urlA, sec(1)) != monitor.EffectIgnored || o.records[urlA] != (monitor.Record{}) {
			t.Errorf("%s: a failure counts", name)
		}
		if o.succeed(urlA, sec(2)) != monitor.EffectSucceeded || o.records[urlA].State != monitor.StateOnline {
			t.Errorf("%s: a success does not count", name)
		}
	}
}

func TestS26Recovery(t *testing.T) {
	l := monitor.DefaultLiveness()
	now := sec(1000)
	streak := func(state monitor.State, first, backoff int64) monitor.Record {
		return monitor.Record{
			State: state, FailureCount: 7, FirstFailure: sec(first), LastFailure: sec(990), LastSuccess: sec(1), SessionSuccess: sec(1),
			BackoffUntil: sec(backoff), Corroborated: true,
		}
	}
	fresh := monitor.Record{State: monitor.StateOffline, LastFailure: sec(990), LastSuccess: sec(1), SessionSuccess: sec(1)}
	online := monitor.Record{State: monitor.StateOnline, LastSuccess: sec(1), OnlineSince: sec(1)}
	same := func(r monitor.Record) [2]monitor.Record { return [2]monitor.Record{r, r} }
	for name, c := range map[string]struct {
		since   time.Time
		records [2]monitor.Record // before, after
	}{
		"unknown":                       {time.Time{}, same(monitor.Record{})},
		"online":                        {time.Time{}, same(online)},
		"offline, excluded":             {time.Time{}, [2]monitor.Record{streak(monitor.StateOffline, 10, 1001), fresh}},
		"dead, excluded":                {time.Time{}, [2]monitor.Record{streak(monitor.StateDead, 10, 1001), fresh}},
		"offline, not excluded":         {time.Time{}, same(streak(monitor.StateOffline, 10, 1000))},
		"dead, not excluded":            {time.Time{}, same(streak(monitor.StateDead, 10, 1000))},
		"cooldown without streak":       {time.Time{}, [2]monitor.Record{{State: monitor.StateOffline, BackoffUntil: sec(1001)}, {State: monitor.StateOffline}}},
		"since: begun before":           {sec(900), same(streak(monitor.StateOffline, 899, 1000))},
		"since: begun with it":          {sec(900), [2]monitor.Record{streak(monitor.StateOffline, 900, 1000), fresh}},
		"since: begun after":            {sec(900), [2]monitor.Record{streak(monitor.StateDead, 950, 1000), fresh}},
		"since: begun before, excluded": {sec(900), [2]monitor.Record{streak(monitor.StateOffline, 10, 1001), fresh}},
		"since: online":                 {sec(0), same(online)},
		"since: unknown":                {sec(0), same(monitor.Record{})},
	} {
		if diff := cmp.Diff(c.records[1], l.Recover(c.records[0], c.since, now)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}

	// The streak is over: the next failure is the first of a new one.
	o := newObserved()
	o.die(t)
	o.v.SetNetworkAvailable(false, sec(760))
	if !o.v.SetNetworkAvailable(true, sec(800)) {
		t.Fatal("no recovery")
	}
	o.records[urlA] = o.l.Recover(o.records[urlA], time.Time{}, sec(800))
	wantState(t, o.records[urlA], monitor.StateOffline, 0, time.Time{})
	if !o.records[urlA].Eligible(sec(800)) {
		t.Error("not eligible")
	}
	wantState(t, o.failAt(t, 815), monitor.StateOffline, 1, sec(845))
}

func TestS27NoChange(t *testing.T) {
	o := newObserved()
	before := *o.v
	if o.v.SetNetworkAvailable(true, sec(10)) || o.v.SetHidden(false, sec(10)) || *o.v != before {
		t.Error("saying what is so already is a recovery")
	}
	o.v.SetNetworkAvailable(false, sec(20))
	before = *o.v
	if o.v.SetNetworkAvailable(false, sec(30)) || *o.v != before {
		t.Error("losing it is a recovery")
	}
	if !o.v.SetNetworkAvailable(true, sec(40)) {
		t.Error("no recovery")
	}
	before = *o.v
	if o.v.SetNetworkAvailable(true, sec(50)) || *o.v != before {
		t.Error("recovered twice")
	}
}

func TestS28Grace(t *testing.T) {
	for name, recover := range map[string]func(*observed){
		"network": func(o *observed) { o.v.SetNetworkAvailable(false, sec(-9)); o.v.SetNetworkAvailable(true, sec(0)) },
		"visible": func(o *observed) { o.v.SetHidden(true, sec(-9)); o.v.SetHidden(false, sec(0)) },
		"other":   func(o *observed) { o.v.Recovered(sec(0)) },
	} {
		o := newObserved()
		recover(o)
		if o.fail(urlA, ms(0)) != monitor.EffectIgnored || o.fail(urlA, ms(14_999)) != monitor.EffectIgnored {
			t.Errorf("%s: counted in the grace", name)
		}
		if o.succeed(urlB, ms(1)) != monitor.EffectSucceeded {
			t.Errorf("%s: success ignored", name)
		}
		if o.fail(urlA, ms(15_000)) != monitor.EffectCounted {
			t.Errorf("%s: ignored after the grace", name)
		}
	}
	// A new observer has no grace.
	o := newObserved()
	o.v = monitor.NewObserver(sec(0))
	if o.fail(urlA, sec(0)) != monitor.EffectCounted {
		t.Error("grace without a recovery")
	}
}

func TestS29SuccessBeforeRecovery(t *testing.T) {
	o := newObserved()
	o.l.RecoveryGracePeriod = 0
	o.failAt(t, 0, 30, 90, 210, 450)
	o.succeed(urlB, sec(745))
	o.v.Recovered(sec(746))
	if r := o.failAt(t, 750); r.State != monitor.StateOffline || r.Corroborated {
		t.Errorf("%+v", r)
	}
	// When the clock went back, what lies in the future neither corroborates
	// nor stands in the way of what comes.
	for name, answer := range map[string]func(o *observed, at time.Time){
		"relay":  func(o *observed, at time.Time) { o.succeed(urlB, at) },
		"canary": func(o *observed, at time.Time) { o.v.CanarySucceeded(at) },
	} {
		for _, again := range []bool{false, true} {
			o := newObserved()
			o.failAt(t, 0, 30, 90, 210, 450)
			answer(o, sec(770))
			answer(o, sec(771))
			o.v.Recovered(sec(700))
			if again {
				answer(o, sec(745))
			}
			if r := o.failAt(t, 750); r.Corroborated != again {
				t.Errorf("%s, clock went back, success since: %v: %+v", name, again, r)
			}
		}
	}
}

func TestS30AvailabilityProvesNothing(t *testing.T) {
	l := monitor.DefaultLiveness()
	for _, state := range []monitor.State{monitor.StateUnknown, monitor.StateOffline, monitor.StateDead} {
		for _, backoff := range []time.Time{{}, sec(-1), sec(99)} {
			for _, since := range []time.Time{{}, sec(-99)} {
				r := monitor.Record{State: state, BackoffUntil: backoff}
				if got := l.Recover(r, since, sec(0)); got.State == monitor.StateOnline {
					t.Errorf("%+v is online", r)
				}
			}
		}
	}
}

func TestS31Independent(t *testing.T) {
	o := newObserved()
	o.v.SetNetworkAvailable(false, sec(0))
	o.v.SetHidden(true, sec(1))
	if o.v.SetNetworkAvailable(true, sec(2)) {
		t.Error("recovered while hidden")
	}
	if o.fail(urlA, sec(3)) != monitor.EffectIgnored {
		t.Error("counted while hidden")
	}
	if !o.v.SetHidden(false, sec(4)) {
		t.Error("not recovered")
	}
	o.v.SetHidden(true, sec(5))
	o.v.SetNetworkAvailable(false, sec(6))
	if o.v.SetHidden(false, sec(7)) {
		t.Error("recovered without a network")
	}
	if !o.v.SetNetworkAvailable(true, sec(8)) {
		t.Error("not recovered")
	}
}

func TestS43RestoreValidates(t *testing.T) {
	l := monitor.DefaultLiveness()
	now := sec(1000)
	good := monitor.Record{
		State: monitor.StateOffline, FailureCount: 2, FirstFailure: sec(900), LastFailure: sec(930), LastSuccess: sec(800),
		BackoffUntil: sec(1001), Corroborated: true,
	}
	for name, c := range map[string]struct {
		change func(*monitor.Record)
		want   func(*monitor.Record)
	}{
		"good":                   {func(*monitor.Record) {}, func(*monitor.Record) {}},
		"unknown":                {func(r *monitor.Record) { r.State = monitor.StateUnknown }, nil},
		"no state":               {func(r *monitor.Record) { r.State = 9 }, nil},
		"negative count":         {func(r *monitor.Record) { r.FailureCount = -1 }, nil},
		"failure before 1970":    {func(r *monitor.Record) { r.FirstFailure = time.Unix(-1, 0) }, nil},
		"last before 1970":       {func(r *monitor.Record) { r.LastFailure = time.Unix(-1, 0) }, nil},
		"success before 1970":    {func(r *monitor.Record) { r.LastSuccess = time.Unix(-1, 0) }, nil},
		"cooldown before 1970":   {func(r *monitor.Record) { r.BackoffUntil = time.Unix(-1, 0) }, nil},
		"success in the future":  {func(r *monitor.Record) { r.LastSuccess = sec(2000) }, func(r *monitor.Record) { r.LastSuccess = now }},
		"failures in the future": {func(r *monitor.Record) { r.FirstFailure, r.LastFailure = sec(2000), sec(3000) }, func(r *monitor.Record) { r.FirstFailure, r.LastFailure = now, now }},
		"never succeeded":        {func(r *monitor.Record) { r.LastSuccess = time.Time{} }, func(r *monitor.Record) { r.LastSuccess = time.Time{} }},
		"streak without begin":   {func(r *monitor.Record) { r.FirstFailure = time.Time{} }, func(r *monitor.Record) { r.FailureCount, r.FirstFailure, r.Corroborated = 0, time.Time{}, false }},
		"streak without end": {func(r *monitor.Record) { r.LastFailure = time.Time{} }, func(r *monitor.Record) {
			*r = monitor.Record{State: r.State, LastSuccess: r.LastSuccess, BackoffUntil: r.BackoffUntil}
		}},
		"streak without failures": {func(r *monitor.Record) { r.FailureCount = 0 }, func(r *monitor.Record) { r.FailureCount, r.FirstFailure, r.Corroborated = 0, time.Time{}, false }},
	} {
		stored := good
		c.change(&stored)
		var want monitor.Record
		if c.want != nil {
			want = good
			c.want(&want)
		}
		if diff := cmp.Diff(want, l.Restore(stored, now)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if got := l.Restore(monitor.Record{}, now); got != (monitor.Record{}) {
		t.Errorf("zero record: %+v", got)
	}
}

func TestS44RestoredOffline(t *testing.T) {
	l := monitor.DefaultLiveness()
	for _, state := range []monitor.State{monitor.StateOnline, monitor.StateOffline, monitor.StateDead} {
		r := l.Restore(monitor.Record{State: state, LastSuccess: sec(1), OnlineSince: sec(1)}, sec(10))
		if r.State != monitor.StateOffline || !r.Eligible(sec(10)) || !r.OnlineSince.IsZero() || !r.LastSuccess.Equal(sec(1)) {
			t.Errorf("%v: %+v", state, r)
		}
	}
}

func TestS45RestoredCooldown(t *testing.T) {
	l := monitor.DefaultLiveness()
	now := sec(1000)
	for stored, want := range map[time.Time]time.Time{
		{}:        {},
		sec(1):    {},
		sec(1000): {},
		sec(1001): sec(1001),
		sec(1300): sec(1300),
		sec(1301): sec(1300),
		sec(4600): sec(1300),
	} {
		if r := l.Restore(monitor.Record{State: monitor.StateDead, BackoffUntil: stored}, now); !r.BackoffUntil.Equal(want) {
			t.Errorf("%v: %v, want %v", stored, r.BackoffUntil, want)
		}
	}
}

func TestS46RestoredSuccess(t *testing.T) {
	o := newObserved()
	o.failAt(t, 0, 30, 90, 210, 450)
	o.records[urlB] = o.l.Restore(monitor.Record{State: monitor.StateOnline, LastSuccess: sec(740), SessionSuccess: sec(740)}, sec(745))
	if !o.records[urlB].SessionSuccess.IsZero() {
		t.Error("a restored success is of this session")
	}
	if r := o.failAt(t, 750); r.Corroborated || r.State != monitor.StateOffline {
		t.Errorf("corroborated by a restored success: %+v", r)
	}
}

func TestS47RestoredStreak(t *testing.T) {
	o := newObserved()
	o.records[urlA] = o.l.Restore(o.die(t), sec(800))
	r := o.records[urlA]
	wantState(t, r, monitor.StateOffline, 6, sec(1100))
	if !r.FirstFailure.Equal(sec(0)) || !r.LastFailure.Equal(sec(750)) {
		t.Errorf("%+v", r)
	}
	o.succeed(urlB, sec(1090))
	wantState(t, o.failAt(t, 1100), monitor.StateDead, 7, sec(4700))

	// An old streak is dropped by S8: it is dead no more.
	o = newObserved()
	o.records[urlA] = o.l.Restore(o.die(t), sec(5000))
	o.succeed(urlB, sec(5000))
	wantState(t, o.failAt(t, 5001), monitor.StateOffline, 1, sec(5031))
}

// TestTransitions is the table of liveness.md, as far as the step goes.
func TestTransitions(t *testing.T) {
	const corroborated, alone = true, false
	from := map[string]func(*testing.T, *observed){
		"unknown":   func(*testing.T, *observed) {},
		"online":    func(_ *testing.T, o *observed) { o.succeed(urlA, sec(740)) },
		"offline 1": func(t *testing.T, o *observed) { o.failAt(t, 740) },
		"offline 5": func(t *testing.T, o *observed) { o.failAt(t, 0, 30, 90, 210, 450) },
		"dead":      func(t *testing.T, o *observed) { o.die(t) },
	}
	fail := func(corroborated bool, change func(*monitor.Liveness)) func(*observed) {
		return func(o *observed) {
			if change != nil {
				change(&o.l)
			}
			if corroborated {
				o.succeed(urlB, sec(4390))
			}
			o.fail(urlA, sec(4400))
		}
	}
	one := func(l *monitor.Liveness) { l.MaxFailuresBeforeDead, l.MinFailureDuration = 1, 0 }
	patient := func(l *monitor.Liveness) { l.FailureWindow = 2 * time.Hour }
	reply := func(o *observed) { o.succeed(urlA, sec(760)) }
	recovery := func(o *observed) { o.records[urlA] = o.l.Recover(o.records[urlA], time.Time{}, sec(760)) }
	restart := func(o *observed) { o.records[urlA] = o.l.Restore(o.records[urlA], sec(760)) }
	for _, c := range []struct {
		from    string
		event   string
		do      func(*observed)
		state   monitor.State
		count   int
		backoff int64 // s, -1 = none
	}{
		{"unknown", "failure", fail(corroborated, nil), monitor.StateOffline, 1, 4430},
		{"unknown", "failure, maximum 1", fail(corroborated, one), monitor.StateDead, 1, 8000},
		{"unknown", "failure, maximum 1, alone", fail(alone, one), monitor.StateOffline, 1, 4430},
		{"unknown", "reply", reply, monitor.StateOnline, 0, -1},
		{"unknown", "recovery", recovery, monitor.StateUnknown, 0, -1},
		{"unknown", "restart", restart, monitor.StateUnknown, 0, -1},

		{"online", "failure", fail(corroborated, nil), monitor.StateOffline, 1, 4430},
		{"online", "failure, maximum 1", fail(corroborated, one), monitor.StateDead, 1, 8000},
		{"online", "reply", reply, monitor.StateOnline, 0, -1},
		{"online", "recovery", recovery, monitor.StateOnline, 0, -1},
		{"online", "restart", restart, monitor.StateOffline, 0, -1},

		{"offline 1", "failure", fail(corroborated, patient), monitor.StateOffline, 2, 4460},
		{"offline 5", "failure, alone", fail(alone, patient), monitor.StateOffline, 6, 4700},
		{"offline 5", "failure", fail(corroborated, patient), monitor.StateDead, 6, 8000},
		{"offline 1", "reply", reply, monitor.StateOnline, 0, -1},
		{"offline 1", "recovery", recovery, monitor.StateOffline, 0, -1},
		{"offline 5", "recovery, not excluded", recovery, monitor.StateOffline, 5, 750},
		{"offline 1", "restart", restart, monitor.StateOffline, 1, 770},

		{"dead", "failure, alone", fail(alone, nil), monitor.StateOffline, 7, 4700},
		{"dead", "failure", fail(corroborated, nil), monitor.StateDead, 7, 8000},
		{"dead", "reply", reply, monitor.StateOnline, 0, -1},
		{"dead", "recovery", recovery, monitor.StateOffline, 0, -1},
		{"dead", "restart", restart, monitor.StateOffline, 6, 760 + 300},
	} {
		t.Run(c.from+"/"+c.event, func(t *testing.T) {
			o := newObserved()
			from[c.from](t, o)
			c.do(o)
			backoff := time.Time{}
			if c.backoff >= 0 {
				backoff = sec(c.backoff)
			}
			wantState(t, o.records[urlA], c.state, c.count, backoff)
		})
	}
}

// watch probes relay A, down from the epoch on, for 48 h: at first, and then
// when next says. Every 15 s meanwhile something else answers. It returns when
// A was first dead, zero for never, and its record in the end.
func watch(first time.Time, next func(now time.Time, r monitor.Record) time.Time, answer func(o *observed, now time.Time)) (died time.Time, last monitor.Record) {
	o := newObserved()
	o.succeed(urlA, sec(-1))
	due := first
	for now := sec(0); now.Before(sec(48 * 3600)); now = now.Add(15 * time.Second) {
		for due.Before(now) {
			o.fail(urlA, due)
			r := o.records[urlA]
			if r.State == monitor.StateDead && died.IsZero() {
				died = due
			}
			due = next(due, r)
		}
		answer(o, now)
	}
	return died, o.records[urlA]
}

// The trap of a plain schedule: what is probed once an hour only is never seen
// to fail twice in one streak.
func TestPlainScheduleTrap(t *testing.T) {
	for name, answer := range map[string]func(o *observed, now time.Time){
		"other relays": func(o *observed, now time.Time) {
			o.succeed(monitor.RelayURL(fmt.Sprintf("wss://r%d.example.com/", now.Unix()/15%20)), now)
		},
		"canary": func(o *observed, now time.Time) { o.v.CanarySucceeded(now) },
	} {
		t.Run(name, func(t *testing.T) {
			died, last := watch(sec(0), func(now time.Time, _ monitor.Record) time.Time { return now.Add(time.Hour) }, answer)
			if !died.IsZero() || last.FailureCount != 1 {
				t.Errorf("plain schedule of an hour: died at %v, in the end %+v", died, last)
			}
			died, last = watch(sec(0), func(_ time.Time, r monitor.Record) time.Time { return r.BackoffUntil }, answer)
			if !died.Equal(sec(750)) || last.State != monitor.StateDead || !last.FirstFailure.Equal(sec(0)) {
				t.Errorf("cooldowns to the second: died at %v, in the end %+v", died, last)
			}
			// Whenever it is first seen down, and however late its cooldowns'
			// ends are kept within reason.
			rapid.Check(t, func(t *rapid.T) {
				interval := time.Duration(rapid.Int64Range(1, 3600).Draw(t, "interval")) * time.Second
				first := epoch.Add(time.Duration(rapid.Int64Range(0, int64(interval)).Draw(t, "phase")))
				died, last := watch(first, func(_ time.Time, r monitor.Record) time.Time {
					return r.BackoffUntil.Add(time.Duration(rapid.Int64Range(0, 30_000).Draw(t, "late")) * time.Millisecond)
				}, answer)
				if died.IsZero() || died.Sub(first) > 1000*time.Second || last.State != monitor.StateDead || !last.FirstFailure.Equal(first) {
					t.Fatalf("down at %v, died at %v, in the end %+v", first, died, last)
				}
			})
		})
	}
}

func TestStepProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newObserved()
		relays := []monitor.RelayURL{urlA, urlB, urlTor}
		outcomes := []monitor.Outcome{
			monitor.OutcomeOK, monitor.OutcomeRefused, monitor.OutcomeRestricted, monitor.OutcomeSkipped, monitor.OutcomeUnclear,
			monitor.OutcomeFailed, monitor.OutcomeFailed, monitor.OutcomeFailed, monitor.OutcomeFailed,
		}
		at := epoch
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			at = at.Add(time.Duration(rapid.Int64Range(0, 2_000_000).Draw(t, "pause")) * time.Millisecond)
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				o.v.SetNetworkAvailable(rapid.Bool().Draw(t, "available"), at)
			case 1:
				o.v.CanarySucceeded(at)
			case 2:
				for relay, r := range o.records {
					o.records[relay] = o.l.Recover(r, time.Time{}, at)
				}
				o.v.Recovered(at)
			default:
				relay := rapid.SampledFrom(relays).Draw(t, "relay")
				outcome := rapid.SampledFrom(outcomes).Draw(t, "outcome")
				started := at.Add(-time.Duration(rapid.Int64Range(0, 20_000).Draw(t, "took")) * time.Millisecond)
				before, vantage := o.records[relay], *o.v
				effect := o.step(relay, outcome, started, at)
				checkStep(t, o.l, before, o.records[relay], outcome, effect, at)
				if effect != monitor.EffectSucceeded && *o.v != vantage {
					t.Fatalf("%v changed the observer", effect)
				}
			}
		}
	})
}

// checkStep fails when one step did what no step may do.
func checkStep(t *rapid.T, l monitor.Liveness, before, after monitor.Record, o monitor.Outcome, effect monitor.Effect, at time.Time) {
	switch effect {
	case monitor.EffectIgnored, monitor.EffectNoEvidence:
		if after != before || o.Success() {
			t.Fatalf("%v %v: %+v became %+v", o, effect, before, after)
		}
	case monitor.EffectSucceeded:
		if !o.Success() || after.State != monitor.StateOnline || after.FailureCount != 0 || !after.Eligible(at) {
			t.Fatalf("%v: %+v", o, after)
		}
	case monitor.EffectCounted:
		cooldown, longest := after.BackoffUntil.Sub(at), l.BackoffMaxDelay
		if after.State == monitor.StateDead {
			longest = l.DeadRetryDelay
			if after.FailureCount < l.MaxFailuresBeforeDead || at.Sub(after.FirstFailure) < l.MinFailureDuration || !after.Corroborated {
				t.Fatalf("dead without reason: %+v", after)
			}
		}
		if o != monitor.OutcomeFailed || cooldown <= 0 || cooldown > longest || after.Eligible(at) {
			t.Fatalf("%v: cooldown %v, %+v", o, cooldown, after)
		}
		if after.State != monitor.StateOffline && after.State != monitor.StateDead || after.FailureCount != 1 && after.FailureCount != before.FailureCount+1 {
			t.Fatalf("%v: %+v became %+v", o, before, after)
		}
	default:
		t.Fatalf("effect %v", effect)
	}
}

func TestRestoreProperties(t *testing.T) {
	l := monitor.DefaultLiveness()
	when := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return time.Unix(rapid.Int64Range(-10, math.MaxInt32).Draw(t, "time"), 0)
	})
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(0, math.MaxInt32).Draw(t, "now"), 0)
		stored := monitor.Record{
			State: monitor.State(rapid.Uint8Range(0, 5).Draw(t, "state")), FailureCount: rapid.IntRange(-1, 9).Draw(t, "count"),
			FirstFailure: when.Draw(t, "first"), LastFailure: when.Draw(t, "last"), LastSuccess: when.Draw(t, "success"),
			BackoffUntil: when.Draw(t, "backoff"), Corroborated: rapid.Bool().Draw(t, "corroborated"), SessionSuccess: when.Draw(t, "session"),
		}
		r := l.Restore(stored, now)
		if again := l.Restore(r, now); again != r {
			t.Fatalf("restored twice: %+v, then %+v", r, again)
		}
		if r.State != monitor.StateUnknown && r.State != monitor.StateOffline || r.FailureCount < 0 {
			t.Fatalf("%+v", r)
		}
		for _, at := range []time.Time{r.FirstFailure, r.LastFailure, r.LastSuccess} {
			if at.After(now) {
				t.Fatalf("in the future of %v: %+v", now, r)
			}
		}
		if !r.SessionSuccess.IsZero() || !r.OnlineSince.IsZero() || r.BackoffUntil.After(now.Add(l.BackoffMaxDelay)) || r.FailureCount > 0 && r.FirstFailure.IsZero() {
			t.Fatalf("%+v", r)
		}
	})
}

func BenchmarkStep(b *testing.B) {
	l := monitor.DefaultLiveness()
	for name, outcome := range map[string]monitor.Outcome{"success": monitor.OutcomeOK, "failure": monitor.OutcomeFailed} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			v := monitor.NewObserver(epoch)
			v.CanarySucceeded(sec(1))
			var r monitor.Record
			at := epoch
			for b.Loop() {
				at = at.Add(5 * time.Minute)
				r, _ = l.Step(r, v, urlA, outcome, at, at)
			}
		})
	}
}
