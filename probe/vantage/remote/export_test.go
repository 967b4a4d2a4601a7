package remote

import (
	"context"
	"runtime"
	"time"
)

// Forget makes the next call of Tasks ask the core.
func (c *Core) Forget() {
	c.tasks.mu.Lock()
	defer c.tasks.mu.Unlock()
	c.tasks.asked = time.Time{}
}

// AwaitRun returns once Run is at work.
func (c *Core) AwaitRun() {
	for !c.running.Load() {
		runtime.Gosched()
	}
}

// SendOldest makes one attempt at the oldest batch, read in that way.
func (c *Core) SendOldest(ctx context.Context, read func(name string) ([]byte, error)) {
	c.readFile = read
	c.send(ctx, c.spool.take())
}

// Elapse lets virtual time pass; it belongs in a synctest bubble only.
func Elapse(d time.Duration) { time.Sleep(d) }
