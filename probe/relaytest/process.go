package relaytest

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// processEnv tells a test binary that it is to be a process of relays.
const processEnv = "PHAROS_RELAYTEST"

// ProcessOptions says which relays a process runs.
type ProcessOptions struct {
	Plain, TLS int // how many, each at its own address
	// Behaviour is that of all of them; 0 = Healthy. RTT is how far away they
	// are (Options.RTT).
	Behaviour  Behaviour
	RTT        time.Duration
	BlackHoles int // how many addresses answer no connection attempt
}

// Process is a process of relays.
type Process struct {
	Plain, TLS []monitor.RelayURL
	BlackHoles []netip.AddrPort
	Roots      *x509.CertPool // of the TLS ones

	cmd   *exec.Cmd
	stdin io.Closer
}

type processReport struct {
	Plain, TLS []monitor.RelayURL
	BlackHoles []netip.AddrPort
	CA         string
}

// Main turns this process into one of relays where StartProcess wants that,
// and does nothing otherwise. A package that uses StartProcess calls it first
// in TestMain.
func Main() {
	text := os.Getenv(processEnv)
	if text == "" {
		return
	}
	if err := runProcess(text); err != nil {
		fmt.Fprintln(os.Stderr, "relaytest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runProcess runs relays until standard input ends: with the parent.
func runProcess(text string) error {
	var o ProcessOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("read %s: %w", processEnv, err)
	}
	report := processReport{CA: string(CAPEM())}
	for i := range o.Plain + o.TLS {
		a := offset(processFirst, uint32(i))
		r, err := New(Options{Addr: a.String() + ":0", TLS: i >= o.Plain, Behaviour: o.Behaviour, RTT: o.RTT})
		if err != nil {
			return err
		}
		if i < o.Plain {
			report.Plain = append(report.Plain, r.URL())
		} else {
			report.TLS = append(report.TLS, r.URL())
		}
	}
	holes, stop, err := blackHoles(o.BlackHoles)
	defer stop()
	if err != nil {
		return err
	}
	report.BlackHoles = holes
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// blackHoles opens n of them; stop closes them.
func blackHoles(n int) (addrs []netip.AddrPort, stop func(), err error) {
	addrs = make([]netip.AddrPort, n)
	stops, errs := make([]func(), n), make([]error, n)
	slots := make(chan struct{}, 300) // each waits until its queue is full
	var wg sync.WaitGroup
	for i := range addrs {
		slots <- struct{}{}
		wg.Go(func() {
			addrs[i], stops[i], errs[i] = blackHole()
			<-slots
		})
	}
	wg.Wait()
	return addrs, func() {
		for _, stop := range stops {
			if stop != nil {
				stop()
			}
		}
	}, errors.Join(errs...)
}

// StartProcess runs relays in a process of their own, which ends with the
// test. TestMain of the test's package must call Main.
func StartProcess(tb testing.TB, o ProcessOptions) *Process {
	tb.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		tb.Fatalf("start a process of relays: %v", err)
	}
	p := &Process{cmd: exec.CommandContext(context.Background(), os.Args[0], "-test.run=^$")}
	p.cmd.Env = append(os.Environ(), processEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		tb.Fatalf("start a process of relays: %v", err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		tb.Fatalf("start a process of relays: %v", err)
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatalf("start a process of relays: %v", err)
	}
	tb.Cleanup(p.Stop)
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		tb.Fatalf("start a process of relays: read its report: %v (does TestMain call relaytest.Main?)", err)
	}
	var report processReport
	if err := json.Unmarshal(line, &report); err != nil {
		tb.Fatalf("start a process of relays: read its report: %v", err)
	}
	p.BlackHoles = report.BlackHoles
	p.Plain, p.TLS, p.Roots = report.Plain, report.TLS, x509.NewCertPool()
	p.Roots.AppendCertsFromPEM([]byte(report.CA))
	return p
}

// Stop kills the process.
func (p *Process) Stop() {
	p.stdin.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// processFirst is the first address of a process's relays.
var processFirst = netip.AddrFrom4([4]byte{127, 192, 0, 1})
