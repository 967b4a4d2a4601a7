package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is how long after the first signal further ones count as that
// one: timeout(1) and process managers send it to the process and to its group.
const sameSignal = 250 * time.Millisecond

// errInterrupted ends what a signal ended.
var errInterrupted = errors.New("interrupted")

// listen returns where the signals arrive: given, or the operating system's. One
// that comes while nobody listens waits.
func listen(given <-chan os.Signal, signals ...os.Signal) (_ <-chan os.Signal, unlisten func()) {
	if given != nil {
		return given, func() {}
	}
	notify := make(chan os.Signal, 1)
	signal.Notify(notify, signals...)
	return notify, func() { signal.Stop(notify) }
}

// untilSignal returns a context that ends with errInterrupted when a signal to
// stop comes; a second one ends the process at once. done gives the signals
// back.
func (c *command) untilSignal(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals, unlisten := listen(c.signals, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-signals:
			secondSignalEnds()
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
		unlisten()
	}
}

// secondSignalEnds gives the signals back to the system's own handling, which
// ends the process.
func secondSignalEnds() {
	time.AfterFunc(sameSignal, func() { signal.Reset(os.Interrupt, syscall.SIGTERM) })
}
