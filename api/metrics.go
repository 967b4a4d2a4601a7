package api

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pharos-nostr/pharos/monitor"
)

// Every value of the enumerations, so that a series is there, at 0, before
// anything happened: an alert on a rate must see it begin.
var (
	states   = []monitor.State{monitor.StateUnknown, monitor.StateOnline, monitor.StateOffline, monitor.StateDead}
	outcomes = []monitor.Outcome{
		monitor.OutcomeOK, monitor.OutcomeRefused, monitor.OutcomeRestricted, monitor.OutcomeFailed, monitor.OutcomeSkipped, monitor.OutcomeUnclear,
	}
	fallbacks = []monitor.Fallback{
		monitor.FallbackWarmingUp, monitor.FallbackClock, monitor.FallbackStale, monitor.FallbackTooFew,
	}
	impairments = []monitor.Impairment{
		monitor.ImpairedNetwork, monitor.ImpairedSuspended, monitor.ImpairedClock, monitor.ImpairedSpike,
		monitor.ImpairedLag, monitor.ImpairedDescriptors, monitor.ImpairedRoots, monitor.ImpairedUnclear,
	}
	networks = []monitor.Network{monitor.Clearnet, monitor.Tor, monitor.I2P, monitor.Loki}
	// The rules of relay-url.md, and the prefixes of S61: any other word is
	// counted as other, as it is a stranger's.
	rules = []string{
		"empty", "length", "scheme", "whitespace", "list", "userinfo", "host", "port", "reserved", "private", "onion", "i2p", "query", "nested", "path", otherWord,
	}
	prefixes = []string{
		"rate-limited", "error", "none", "auth-required", "restricted", "blocked", "invalid", "pow", "unsupported", "mute", "deleted", "duplicate", "replaced", otherWord,
	}
)

const otherWord = "other"

// httpMetrics counts what the API itself does.
type httpMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	panics   prometheus.Counter
}

// newHTTPMetrics registers them, with those of the process and of Go's run
// time, which take our prefix too.
func newHTTPMetrics(r *prometheus.Registry) *httpMetrics {
	m := &httpMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pharos_http_requests_total", Help: "HTTP requests answered.",
		}, []string{"route", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pharos_http_request_duration_seconds", Help: "How long an answer took.",
			Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10},
		}, []string{"route"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pharos_http_panics_total", Help: "Handlers that panicked.",
		}),
	}
	r.MustRegister(m.requests, m.duration, m.panics)
	prometheus.WrapRegistererWithPrefix("pharos_", r).MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// metricsHandler serves the registry.
func metricsHandler(r *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.HTTPErrorOnError,
		MaxRequestsInFlight: 4,
		Timeout:             storeTimeout,
	})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("pharos_"+name, help, labels, nil)
}

var (
	descBuild        = desc("build_info", "Always 1; the version is the label.", "version")
	descStart        = desc("start_time_seconds", "When the core started.")
	descLeader       = desc("leader", "1 = this core decides, 0 = it stands by.")
	descReady        = desc("ready", "1 = as /readyz, without asking the store anew.")
	descStore        = desc("store_up", "1 = the store answers.")
	descGeneration   = desc("generation", "Number of the current generation.")
	descGenerated    = desc("generation_timestamp_seconds", "When the current generation was made.")
	descUsable       = desc("usable", "1 = the live list may be used.")
	descFallback     = desc("fallback", "1 for the reason why the live list must not be used.", "reason")
	descNewest       = desc("newest_check_timestamp_seconds", "Newest success of the online relays; absent when there are none.")
	descOldest       = desc("oldest_check_timestamp_seconds", "Oldest of each online relay's newest success; absent when there are none.")
	descListed       = desc("relays_listed", "Relays in the live list.")
	descRelays       = desc("relays", "Monitored relays by verdict, candidates apart.", "state")
	descCandidates   = desc("candidates", "Relays found and not yet seen alive.")
	descHeld         = desc("departures_held", "Online relays whose departure the brake holds back.")
	descBrake        = desc("brake_engaged", "1 = too many relays would leave at once.")
	descMeasured     = desc("warm_up_relays_measured", "Relays measured in the first full pass.")
	descDue          = desc("warm_up_relays_due", "Relays due in the first full pass.")
	descSkew         = desc("clock_skew_seconds", "Our clock against the relays'; 0 = fine or unknown.")
	descVantages     = desc("vantages", "Enrolled vantages, revoked ones apart.")
	descHealthy      = desc("vantage_healthy", "1 = the vantage is not impaired.", "vantage")
	descImpaired     = desc("vantage_impaired", "1 for each impairment that the vantage reports.", "vantage", "impairment")
	descSeen         = desc("vantage_last_seen_timestamp_seconds", "Newest batch of the vantage; absent before the first.", "vantage")
	descLag          = desc("vantage_lag_seconds", "How late the vantage's probes start, 95th percentile of a minute.", "vantage")
	descVantageSkew  = desc("vantage_clock_skew_seconds", "The vantage's clock against ours.", "vantage")
	descInFlight     = desc("vantage_probes_in_flight", "Probes under way at the vantage.", "vantage")
	descWatched      = desc("vantage_relays_watched", "Relays on the vantage's schedule.", "vantage")
	descEligible     = desc("vantage_eligible", "1 = the vantage's votes count now.", "vantage")
	descDisagreement = desc("vantage_disagreement_ratio", "Share of the vantage's votes of the last hour that stood against the verdict; absent when there were none.", "vantage")
	descUnwatched    = desc("observations_unwatched_total", "Observations dropped because their relay is not watched.")
	descObservations = desc("observations_total", "Observations taken in, by outcome.", "outcome")
	descTransitions  = desc("transitions_total", "Changes of verdicts, by new state.", "state")
	descBatches      = desc("batches_total", "Batches of observations, by what became of them.", "result")
	descReports      = desc("reports_signed_total", "Relay reports signed.")
	descNetworkUp    = desc("vantage_network_up", "1 = the vantage's way into the network answers, 0 = its proxy does not.", "vantage", "network")
	descAliases      = desc("relay_aliases", "Watched URLs that are another one's relay.")
	descTwins        = desc("relay_twins", "Watched ws relays that a wss one stands for.")
	descExpiring     = desc("tls_expiring", "Online relays whose TLS certificate is about to expire.")
	descFound        = desc("discovery_found", "Relays that the newest sweep found named; absent where discovery is off, as all of it.")
	descFoundWatched = desc("discovery_watched", "Found relays that are monitored or candidates.")
	descWaiting      = desc("discovery_waiting", "Found relays that have no room.")
	descDiscoverHeld = desc("discovery_held", "1 = the set did not change as the newest sweep asked.")
	descSwept        = desc("discovery_last_sweep_timestamp_seconds", "When the newest sweep ended; absent before the first.")
	descSweepWhole   = desc("discovery_sweep_whole", "1 = the newest sweep read every source to its end.")
	descRejected     = desc("discovery_rejected", "URLs of the newest sweep that were no relay's, by the rule that they broke.", "reason")
	descRefusals     = desc("discovery_refusals", "Refusals of sources in the newest sweep, by their prefix.", "prefix")
)

// collector reads the core's own figures when it is scraped.
type collector struct{ a *API }

// Describe leaves the collector unchecked: which vantages there are is known
// only at the scrape.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect is called on goroutines of the registry, where no handler's recover
// reaches.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	defer func() {
		if v := recover(); v != nil {
			c.a.log.Error("metrics could not be read", "panic", v)
			ch <- prometheus.NewInvalidMetric(descBuild, fmt.Errorf("read the core's figures: %v", v))
		}
	}()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	moment := func(d *prometheus.Desc, t time.Time, labels ...string) {
		if !t.IsZero() {
			gauge(d, float64(t.UnixMilli())/1000, labels...)
		}
	}

	core := c.a.opts.Core
	s, g := core.Status(), core.Generation()
	fallback := c.a.fallback(g, time.Now())
	ready, _ := core.Ready()
	gauge(descBuild, 1, c.a.opts.Version)
	moment(descStart, s.Started)
	gauge(descLeader, flag(s.Leader))
	gauge(descReady, flag(ready))
	gauge(descStore, flag(s.StoreError == ""))
	gauge(descGeneration, float64(g.Number))
	moment(descGenerated, g.GeneratedAt)
	gauge(descUsable, flag(fallback == monitor.FallbackNone))
	for _, f := range fallbacks {
		gauge(descFallback, flag(fallback == f), string(f))
	}
	moment(descNewest, g.NewestCheck)
	moment(descOldest, g.OldestCheck)
	gauge(descListed, float64(len(g.Online)))
	for _, state := range states {
		gauge(descRelays, float64(s.States[state]), state.String())
		counter(descTransitions, s.Transitions[state], state.String())
	}
	gauge(descCandidates, float64(s.Candidates))
	gauge(descHeld, float64(s.Held))
	gauge(descBrake, flag(s.Engaged))
	gauge(descMeasured, float64(s.WarmUp.Measured))
	gauge(descDue, float64(s.WarmUp.Due))
	gauge(descSkew, s.ClockSkew.Seconds())
	for _, o := range outcomes {
		counter(descObservations, s.Observations[o], o.String())
	}
	counter(descBatches, s.Ingested, "ingested")
	counter(descBatches, s.Refused, "refused")
	counter(descReports, s.ReportsSigned)
	counter(descUnwatched, s.Unwatched)
	gauge(descAliases, float64(s.Aliases))
	gauge(descTwins, float64(s.Twins))
	gauge(descExpiring, float64(s.Expiring))
	if d := s.Discovery; d != nil {
		gauge(descFound, float64(d.Found))
		gauge(descFoundWatched, float64(d.Watched))
		gauge(descWaiting, float64(d.Waiting))
		gauge(descDiscoverHeld, flag(d.Held != ""))
		if sweep := d.Sweep; sweep != nil {
			moment(descSwept, sweep.At)
			gauge(descSweepWhole, flag(sweep.Whole))
			for word, n := range bounded(sweep.Rejected, rules) {
				gauge(descRejected, float64(n), word)
			}
			for word, n := range bounded(sweep.Refusals, prefixes) {
				gauge(descRefusals, float64(n), word)
			}
		}
	}

	enrolled := 0
	for i := range s.Vantages {
		v := &s.Vantages[i]
		if v.Revoked {
			continue
		}
		enrolled++
		gauge(descHealthy, flag(len(v.Health.Impairments) == 0), v.Name)
		for _, m := range impairments {
			gauge(descImpaired, flag(slices.Contains(v.Health.Impairments, m)), v.Name, string(m))
		}
		gauge(descEligible, flag(v.Eligible), v.Name)
		if v.Judged > 0 {
			gauge(descDisagreement, v.Disagreement, v.Name)
		}
		moment(descSeen, v.LastSeen, v.Name)
		gauge(descLag, v.Health.Lag.Seconds(), v.Name)
		gauge(descVantageSkew, v.Skew.Seconds(), v.Name)
		gauge(descInFlight, float64(v.Health.InFlight), v.Name)
		gauge(descWatched, float64(v.Health.Watched), v.Name)
		for _, n := range networks {
			if v.Reaches(n) {
				gauge(descNetworkUp, flag(!v.Lost(n)), v.Name, string(n))
			}
		}
	}
	gauge(descVantages, float64(enrolled))
}

// bounded sums counts by the words that are known; all of those are in it.
func bounded(counts map[string]int, known []string) map[string]int {
	out := make(map[string]int, len(known))
	for _, word := range known {
		out[word] = 0
	}
	for word, n := range counts {
		if !slices.Contains(known, word) {
			word = otherWord
		}
		out[word] += n
	}
	return out
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
