package api

import (
	"container/list"
	"sync"
)

// The most that the views of one generation may hold: whoever varies
// parameters makes us forget a view and encode it again, not grow.
const (
	maxViews     = 64
	maxViewBytes = 32 << 20
)

// views keeps the filtered views of one generation, the last used ones.
type views struct {
	mu    sync.Mutex
	order *list.List // of *view, last used first
	byKey map[string]*list.Element
	bytes int
}

type view struct {
	key   string
	body  *body
	bytes int // of its variants
}

func newViews() *views {
	return &views{order: list.New(), byKey: map[string]*list.Element{}}
}

// get returns the view of that key, which build makes where it is not kept.
// Build must not encode yet: it is called under the lock.
func (vs *views) get(key string, build func() *body) *body {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if e := vs.byKey[key]; e != nil {
		vs.order.MoveToFront(e)
		return e.Value.(*view).body
	}
	v := &view{key: key, body: build()}
	v.body.kept = func(bytes int) { vs.grown(v, bytes) }
	vs.byKey[key] = vs.order.PushFront(v)
	vs.trim()
	return v.body
}

// grown accounts for a variant that v now holds, if it is still kept.
func (vs *views) grown(v *view, bytes int) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if e := vs.byKey[v.key]; e == nil || e.Value != v {
		return
	}
	v.bytes += bytes
	vs.bytes += bytes
	vs.trim()
}

// trim forgets the views that were not used for longest. Readers that hold one
// of them finish with it.
func (vs *views) trim() {
	for vs.order.Len() > maxViews || vs.bytes > maxViewBytes {
		v := vs.order.Remove(vs.order.Back()).(*view)
		delete(vs.byKey, v.key)
		vs.bytes -= v.bytes
	}
}
