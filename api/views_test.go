package api

import (
	"fmt"
	"testing"
)

// Whatever is asked, the views of a generation hold no more than their bound,
// and the last used ones are kept.
func TestViewsAreBounded(t *testing.T) {
	made := 0
	get := func(vs *views, key string, size int) *body {
		b := vs.get(key, func() *body {
			made++
			return newHashed("x", "text/plain", func() (page, error) { return page{data: make([]byte, size)}, nil })
		})
		if v := b.variant(identity); v.err != nil || len(v.data) != size {
			t.Fatal(v.err)
		}
		return b
	}
	vs := newViews()
	hot := get(vs, "hot", 10)
	for i := range 1000 {
		get(vs, fmt.Sprint(i), 10)
		if get(vs, "hot", 10) != hot {
			t.Fatal("a view in use was forgotten")
		}
		if vs.order.Len() > maxViews || len(vs.byKey) != vs.order.Len() {
			t.Fatalf("%d views", vs.order.Len())
		}
	}
	if made != 1001 || vs.bytes != 10*maxViews {
		t.Errorf("made %d, %d bytes", made, vs.bytes)
	}
	for i := range 20 {
		get(vs, fmt.Sprint("big", i), maxViewBytes/3)
		if vs.bytes > maxViewBytes {
			t.Fatalf("%d bytes", vs.bytes)
		}
	}
	get(vs, "too big", maxViewBytes+1) // answered all the same
	if vs.order.Len() != 0 || vs.bytes != 0 {
		t.Errorf("%d views, %d bytes", vs.order.Len(), vs.bytes)
	}
	late := vs.get("late", func() *body {
		return newHashed("x", "", func() (page, error) { return page{data: make([]byte, 5)}, nil })
	})
	for i := range maxViews {
		get(vs, fmt.Sprint("after", i), 1)
	}
	late.variant(identity) // encoded when it is kept no more
	if vs.bytes != maxViews {
		t.Errorf("%d bytes", vs.bytes)
	}
}
