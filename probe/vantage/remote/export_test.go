package remote

import (
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
