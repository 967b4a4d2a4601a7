package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pharos-nostr/pharos/publisher/relay"
)

// collector reads, when it is scraped, what only this process knows of its
// vantages and its relay. What vantages tell the core, as remote ones do too, is
// the API's to show.
type collector struct {
	points  []*point
	relay   *relay.Relay
	backups *dailyBackup // nil = none are made
	host    func() *host // nil until the machine is watched
}

func vantageDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("pharos_vantage_"+name, help, []string{"vantage"}, nil)
}

func relayDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("pharos_relay_"+name, help, nil, nil)
}

var (
	descWaiting          = vantageDesc("probes_waiting", "Probes that are due and wait for the pace or for room.")
	descParked           = vantageDesc("probes_parked", "Probes that are due and wait for a permit for their address or its neighbours.")
	descRate             = vantageDesc("probe_rate", "Present pace, probes started in a second.")
	descPanics           = vantageDesc("probes_panicked_total", "Probes that an error in Pharos itself ended.")
	descExpedited        = vantageDesc("probes_expedited_total", "Expedited probes started.")
	descExpeditesDropped = vantageDesc("expedites_dropped_total", "Expedited probes asked for and not started.")
	descBatches          = vantageDesc("batches_delivered_total", "Batches of observations that the core took.")
	descFailures         = vantageDesc("delivery_failures_total", "Attempts to deliver a batch that failed.")
	descQueued           = vantageDesc("observations_queued", "Observations that wait for the core.")
	descDropped          = vantageDesc("observations_dropped_total", "Observations given up because the queue was full.")
	descInfosDropped     = vantageDesc("documents_dropped_total", "NIP-11 documents given up because the queue was full, to be read again.")

	descConnections   = relayDesc("connections", "Clients connected to the relay.")
	descSubscriptions = relayDesc("subscriptions", "Subscriptions that are open on the relay.")
	descStored        = relayDesc("events_stored", "Events that the relay holds.")
	descSent          = relayDesc("events_sent_total", "EVENT messages sent to clients.")
	descSlow          = relayDesc("slow_clients_total", "Connections closed because the client did not read.")
	descRateLimited   = relayDesc("rate_limited_total", "Requests answered with rate-limited.")
	descRefused       = relayDesc("refused_connections_total", "Connections refused because their address holds too many.")

	descBackup   = prometheus.NewDesc("pharos_backup_last_success_timestamp_seconds", "When the newest daily backup was made; 0 = there is none.", nil, nil)
	descWarnings = prometheus.NewDesc("pharos_host_warnings", "Sentences in /v1/status about this machine that an operator should read.", nil, nil)
)

// Describe names every metric.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect reads the present figures.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, p := range c.points {
		s := p.vantage.Stats()
		gauge(descWaiting, float64(s.Ready), p.name)
		gauge(descParked, float64(s.Parked), p.name)
		gauge(descRate, s.Rate, p.name)
		counter(descPanics, p.panics.Load()+p.checker.Load().Panics(), p.name)
		counter(descExpedited, s.Expedited, p.name)
		counter(descExpeditesDropped, s.ExpeditesDropped, p.name)
		counter(descBatches, s.Batches, p.name)
		counter(descFailures, s.DeliveryFailures, p.name)
		gauge(descQueued, float64(s.Queued), p.name)
		counter(descDropped, s.Dropped, p.name)
		counter(descInfosDropped, s.InfosDropped, p.name)
	}
	s := c.relay.Stats()
	gauge(descConnections, float64(s.Connections))
	gauge(descSubscriptions, float64(s.Subscriptions))
	gauge(descStored, float64(s.Stored))
	counter(descSent, s.Sent)
	counter(descSlow, s.Slow)
	counter(descRateLimited, s.RateLimited)
	counter(descRefused, s.Refused)
	if c.backups != nil {
		last := 0.0
		if t := c.backups.LastSuccess(); !t.IsZero() {
			last = float64(t.Unix())
		}
		gauge(descBackup, last)
	}
	if h := c.host(); h != nil {
		gauge(descWarnings, float64(len(h.Warnings())))
	}
}
