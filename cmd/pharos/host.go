package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// hostEvery is how often the machine is looked at.
	hostEvery = 15 * time.Second
	// spareDescriptors are kept for what is no probe: the database, readers,
	// canaries and files.
	spareDescriptors = 256
	// The garbage collector aims at this share of a cgroup's memory, less what
	// the private PostgreSQL in the same cgroup needs.
	memoryShare = 0.9
	clusterRoom = 256 << 20 // bytes
)

// rawKeeper is told whether raw observations may be written.
type rawKeeper interface{ KeepRaw(on bool) }

// host watches what this machine gives us and says what an operator must mend.
type host struct {
	log *slog.Logger
	// dir is on the disk that holds the history; "" = it is on another machine.
	dir string
	raw rawKeeper
	// What may change: the share of the disk that must stay free, and other
	// parts' own warnings.
	minFree func() float64
	others  []func() string // "" = all is well
	// free tells the free and the whole size of the disk that holds dir, bytes;
	// tests put their own in.
	free func(dir string) (free, size uint64, err error)

	full bool // only run's goroutine

	mu       sync.Mutex
	warnings []string
}

// Warnings are sentences about this machine that an operator should read.
func (h *host) Warnings() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.warnings)
}

// run looks at the machine until ctx ends.
func (h *host) run(ctx context.Context) error {
	tick := time.NewTicker(hostEvery)
	defer tick.Stop()
	for {
		h.look()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look judges the machine once, and logs what is new.
func (h *host) look() {
	var now []string
	add := func(text string) {
		if text != "" {
			now = append(now, text)
		}
	}
	add(h.disk())
	for _, other := range h.others {
		add(other())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range now {
		if !slices.ContainsFunc(h.warnings, func(old string) bool { return sameWarning(old, w) }) {
			h.log.Warn("this machine needs attention", "what", w)
		}
	}
	for _, w := range h.warnings {
		if !slices.ContainsFunc(now, func(n string) bool { return sameWarning(n, w) }) {
			h.log.Info("no longer", "what", w)
		}
	}
	h.warnings = now
}

// sameWarning compares the beginnings, in front of the figures.
func sameWarning(a, b string) bool { return prefixOf(a) == prefixOf(b) }

func prefixOf(s string) string {
	for i, r := range s {
		if r >= '0' && r <= '9' {
			return s[:i]
		}
	}
	return s
}

// disk stops raw observations while the disk is too full, and lets them on
// again when half as much more is free: the border must not be crossed with
// every batch.
func (h *host) disk() string {
	minFree := h.minFree()
	if h.dir == "" || minFree <= 0 {
		h.keepRaw(true)
		return ""
	}
	free, size, err := h.free(h.dir)
	if err != nil || size == 0 {
		return "" // then the database will say it
	}
	share, enough := float64(free)/float64(size), math.Min(1.5*minFree, (1+minFree)/2)
	full := h.full
	switch {
	case share < minFree:
		full = true
	case share >= enough:
		full = false
	}
	h.keepRaw(!full)
	if !full {
		return ""
	}
	return fmt.Sprintf("the disk that holds %s is nearly full: raw observations are not kept until %.3g %% of it is free (it is %.3g %%, %s); verdicts go on",
		h.dir, enough*100, share*100, sizeText(int64(free)))
}

func (h *host) keepRaw(on bool) {
	if h.full == on {
		h.full = !on
		h.raw.KeepRaw(on)
	}
}

// diskFree asks the file system; what only root may use is not free.
func diskFree(dir string) (free, size uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), nil
}

// limitMemory gives the garbage collector the memory that the cgroup allows, so
// that it works harder before the kernel kills us. $GOMEMLIMIT is obeyed by the
// runtime itself and wins.
func limitMemory(log *slog.Logger, privateCluster bool) {
	if _, set := os.LookupEnv("GOMEMLIMIT"); set {
		return
	}
	whole, err := memlimit.FromCgroup()
	if err != nil {
		if !errors.Is(err, memlimit.ErrNoLimit) && !errors.Is(err, memlimit.ErrNoCgroup) && !errors.Is(err, memlimit.ErrCgroupsNotSupported) {
			log.Debug("the cgroup's memory limit cannot be read", "error", err)
		}
		return
	}
	limit := memoryFor(whole, privateCluster)
	debug.SetMemoryLimit(limit)
	log.Info("memory limit from the cgroup", "cgroup", sizeText(int64(whole)), "ours", sizeText(limit))
}

// memoryFor is our part of a cgroup's memory, bytes.
func memoryFor(whole uint64, privateCluster bool) int64 {
	ours := float64(whole) * memoryShare
	if privateCluster {
		ours = math.Max(ours-clusterRoom, float64(whole)/2)
	}
	return int64(math.Min(ours, math.MaxInt64/2))
}

// descriptorRoom is how many probes may be in flight of those wanted. Go has
// raised the soft limit to the hard one at the start of the process.
func descriptorRoom(wanted int) (room int, warning string) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return wanted, ""
	}
	return roomFor(wanted, r.Cur)
}

func roomFor(wanted int, limit uint64) (room int, warning string) {
	if limit >= uint64(wanted)+spareDescriptors {
		return wanted, ""
	}
	room = int(limit) / 2
	if limit > 2*spareDescriptors {
		room = int(limit) - spareDescriptors
	}
	room = max(1, min(room, wanted))
	return room, fmt.Sprintf("this process may open only %d files, so at most %d probes are in flight instead of %d: raise the limit (ulimit -n, LimitNOFILE= of systemd) or lower probe.concurrency",
		limit, room, wanted)
}
