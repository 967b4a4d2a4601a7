package remote_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/probe/vantage/remote"
)

// What tells a re-executed test binary to be the victim of TestKilled.
const (
	victimDir = "PHAROS_REMOTE_VICTIM_DIR"
	victimURL = "PHAROS_REMOTE_VICTIM_URL"
	victimKey = "PHAROS_REMOTE_VICTIM_KEY"
)

// beKilled delivers batches as fast as it can and says each number once Deliver
// has taken it, until it is killed.
func beKilled(dir, url, secret string) {
	fail := func(err error) {
		fmt.Println("error", err)
		os.Exit(1)
	}
	key, err := nostr.ParseKey(secret)
	if err != nil {
		fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // should nobody kill us
	defer cancel()
	c, err := remote.New(remote.Config{URL: url, Key: key, Name: "berlin", Dir: dir})
	if err != nil {
		fail(err)
	}
	go func() { _ = c.Run(ctx) }()
	tasks, err := c.Tasks(ctx, "berlin", 0)
	if err != nil {
		fail(err)
	}
	for seq := tasks.LastSeq + 1; ctx.Err() == nil; seq++ {
		if _, err := c.Deliver(ctx, observed(seq, 20)); err != nil {
			fail(err)
		}
		fmt.Println("took", seq)
	}
}

// Killed at any moment, 30 times: every batch that Deliver took reaches the core
// exactly once, in order; of the others at most the one under way, once.
func TestKilled(t *testing.T) {
	const secret = "5f2f2f8b0e3d7ad2a3d2a0c9c5b1ff0a3e3c1d6f0b2a4c6e8a0c2e4f6a8b0d1f"
	key, err := nostr.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	f := newFakeCore(t, key)
	f.watch(relayTask("wss://relay1.example.com/"))
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	took := map[uint64]bool{}
	for round := range 30 {
		// In every other round the core is away, so that the spool grows.
		away := round%2 == 1
		f.set(func() {
			f.intercept = nil
			if away {
				f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
					if r.Method == "POST" {
						w.WriteHeader(503)
						return true
					}
					return false
				}
			}
		})
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), victimDir+"="+dir, victimURL+"="+f.URL, victimKey+"="+secret)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Killed after some batches, at a moment within the next.
		after := 1 + random.IntN(12)
		delay := time.Duration(random.IntN(10_000)) * time.Microsecond
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			word, number, _ := strings.Cut(lines.Text(), " ")
			seq, err := strconv.ParseUint(number, 10, 64)
			if word != "took" || err != nil {
				t.Fatalf("round %d: the victim says %q", round, lines.Text())
			}
			if took[seq] {
				t.Errorf("round %d: number %d was given twice", round, seq)
			}
			took[seq] = true
			if n == after {
				timer := time.AfterFunc(delay, func() { _ = cmd.Process.Kill() })
				defer timer.Stop()
			}
		}
		_ = cmd.Wait()
	}
	f.set(func() { f.intercept = nil })
	c, _ := open(t, remote.Config{URL: f.URL, Key: key, Dir: dir})
	background(t, c)
	f.await("an empty spool", func() bool { return c.Stats().Batches == 0 })

	got := f.seqs()
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("not each once and in order: %v", got)
	}
	missing, extra := 0, 0
	for seq := range took {
		if !slices.Contains(got, seq) {
			missing++
		}
	}
	for _, seq := range got {
		if !took[seq] {
			extra++ // on the disk, but killed before it could say so
		}
	}
	if missing > 0 || extra > 30 {
		t.Errorf("of %d batches that were taken %d are missing; %d others", len(took), missing, extra)
	}
	for _, b := range f.batches() {
		if len(b.Observations) != 20 {
			t.Errorf("batch %d came with %d observations", b.Seq, len(b.Observations))
		}
	}
	t.Logf("%d batches taken, %d stored, %d of them killed before they could be told; broken %d", len(took), len(got), extra, c.Stats().Broken)
}
