package discovery

import (
	"context"
	"net/http"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// ReadOne is what a sweep comes to in which one source sends one event.
func ReadOne(raw []byte, now time.Time) monitor.Sweep {
	cfg := Config{Sources: []monitor.RelayURL{"wss://source.example.com/"}, Client: &http.Client{}}
	if err := cfg.fill(); err != nil {
		panic(err)
	}
	ls := newLists(cfg.MaxAuthors)
	r := newReading(&cfg, ls, &source{url: cfg.Sources[0]}, 1, now, make(chan struct{}, verifiers))
	r.pages.until = now.Add(future).Unix()
	if err := r.event(context.Background(), raw); err != nil {
		panic(err)
	}
	close(r.queue)
	r.verify(context.Background())
	s := monitor.Sweep{Ignored: r.ignored}
	ls.tally(&s)
	return s
}
