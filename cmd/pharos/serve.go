package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

type serveCmd struct {
	NewKey bool `help:"Go on with this key although the database holds reports of another: clients will see a new monitor."`
}

// stopLimit bounds a whole shutdown (config.md); what is not done by then is
// cut off.
const stopLimit = 19 * time.Second

// Run serves until a signal comes. A second signal ends the process at once.
func (s *serveCmd) Run(ctx context.Context, c *command) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	stop, unlisten := listen(c.signals, os.Interrupt, syscall.SIGTERM)
	defer unlisten()
	hangups, unlisten := listen(c.hangups, syscall.SIGHUP)
	defer unlisten()
	if cfg.file != "" {
		c.log.Info("configuration", "file", cfg.file)
	}
	app, err := New(&cfg.Config, cfg.dataDir(os.Getuid()), s.NewKey, c.log)
	if err != nil {
		return err
	}
	app.reread, app.environ = c.reread, c.environ
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- app.Start(starting) }()
	select {
	case err := <-started:
		if err != nil {
			return err
		}
	case sig := <-stop:
		secondSignalEnds()
		c.log.Info("stopping before everything was up", "signal", sig.String())
		cancel()
		limit, done := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer done()
		return c.breakOff(limit, app, started)
	}

	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	var watch sync.WaitGroup
	watch.Go(func() { app.sayWhenReady(watching) })
	watch.Go(func() { app.reloadOn(watching, hangups) })
	var failure error
	select {
	case sig := <-stop:
		c.log.Info("stopping: a second signal ends at once", "signal", sig.String())
	case failure = <-app.Failed():
		c.log.Error("stopping", "error", failure)
	case <-ctx.Done():
	}
	secondSignalEnds()
	unwatch()
	watch.Wait()
	limit, done := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer done()
	if err := errors.Join(failure, c.stop(limit, app)); err != nil {
		return exitWith(exitStart, err)
	}
	return nil
}

// reread reads the configuration again, from where it was read at the start.
func (c *command) reread() (*Config, error) {
	l, err := loadConfig(c.flags.Config, c.environ, c.overrides())
	if err != nil {
		return nil, err
	}
	return &l.Config, nil
}

// reloadOn reloads the configuration at each signal until ctx ends.
func (a *App) reloadOn(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-hangups:
			_, _ = a.Reload(ctx) // says in the log what came of it
		case <-ctx.Done():
			return
		}
	}
}

// breakOff waits for a start that was told to end, no longer than ctx lasts:
// what the system never returns from ends with the process.
func (c *command) breakOff(ctx context.Context, app *App, started <-chan error) error {
	select {
	case err := <-started:
		if err != nil {
			return nil // interrupted as it was told to
		}
		return c.stop(ctx, app)
	case <-ctx.Done():
		return exitf(exitStart, "the start could not be broken off within %s: it is cut off", stopLimit)
	}
}

func (c *command) stop(ctx context.Context, app *App) error {
	begun := time.Now()
	err := app.Stop(ctx)
	c.log.Info("stopped", "took", time.Since(begun).Round(time.Millisecond).String())
	return err
}

// sayWhenReady logs once that readers may come.
func (a *App) sayWhenReady(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, _ := a.Ready(); ok {
			g := a.engine.Generation()
			a.log.Info("ready", "online", len(g.Online), "live", a.URL()+"/v1/live", "relay", a.relayURL())
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
