package api

import (
	"strconv"
	"time"
)

// FillReplays uses up all room for signed requests.
func (a *API) FillReplays() {
	for i := range maxReplays {
		a.auth.used.claim(strconv.Itoa(i), time.Now(), time.Now())
	}
}

// Remembered is how many addresses the limit of requests knows of.
func (a *API) Remembered() int {
	t := &a.limits.requests
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.now) + len(t.before)
}
