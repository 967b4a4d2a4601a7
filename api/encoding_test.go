package api

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

func TestNegotiate(t *testing.T) {
	for name, c := range map[string]struct {
		header []string
		want   encoding
	}{
		"none":                  {nil, identity},
		"empty":                 {[]string{""}, identity},
		"gzip":                  {[]string{"gzip"}, gzipCoding},
		"x-gzip":                {[]string{"x-gzip"}, gzipCoding},
		"case":                  {[]string{"GZip"}, gzipCoding},
		"browser":               {[]string{"gzip, deflate, br, zstd"}, zstdCoding},
		"old browser":           {[]string{"gzip, deflate, br"}, gzipCoding},
		"weights":               {[]string{"zstd;q=0.5, gzip;q=0.9"}, gzipCoding},
		"spaces":                {[]string{" zstd ; q=0.5 ,\tgzip ; Q = 0.9"}, gzipCoding},
		"two lines":             {[]string{"gzip;q=0.1", "zstd;q=0.2"}, zstdCoding},
		"refused":               {[]string{"zstd;q=0, gzip;q=0.000"}, identity},
		"star":                  {[]string{"*"}, zstdCoding},
		"star without zstd":     {[]string{"zstd;q=0, *"}, gzipCoding},
		"star refused":          {[]string{"*;q=0"}, identity},
		"star below":            {[]string{"gzip, *;q=0.5"}, gzipCoding},
		"identity preferred":    {[]string{"identity, gzip;q=0.5"}, identity},
		"identity less":         {[]string{"identity;q=0.2, gzip;q=0.5"}, gzipCoding},
		"everything refused":    {[]string{"identity;q=0, *;q=0"}, identity},
		"unknown":               {[]string{"br, deflate"}, identity},
		"malformed weight":      {[]string{"gzip;q=x"}, identity},
		"weight above one":      {[]string{"gzip;q=2"}, identity},
		"not a number":          {[]string{"gzip;q=NaN"}, identity},
		"other parameter":       {[]string{"gzip;level=9"}, gzipCoding},
		"junk":                  {[]string{";;,,;q=1,=,\x00"}, identity},
		"substring is no match": {[]string{"notgzip, gzipped"}, identity},
	} {
		if got := negotiate(c.header); got != c.want {
			t.Errorf("%s: %s, want %s", name, encodingNames[got], encodingNames[c.want])
		}
	}
}

func TestMatches(t *testing.T) {
	const tag = `"812.abc-gzip"`
	for name, c := range map[string]struct {
		header []string
		want   bool
	}{
		"none":            {nil, false},
		"strong":          {[]string{`"812.abc-gzip"`}, true},
		"weak":            {[]string{`W/"812.abc-gzip"`}, true},
		"list":            {[]string{`"a", W/"b" , "812.abc-gzip"`}, true},
		"two lines":       {[]string{`"a"`, `"812.abc-gzip"`}, true},
		"star":            {[]string{"*"}, true},
		"other":           {[]string{`"812.abc"`}, false},
		"longer":          {[]string{`"812.abc-gzip2"`}, false},
		"unquoted":        {[]string{`812.abc-gzip`}, false},
		"comma inside":    {[]string{`"x,y", "812.abc-gzip"`}, true},
		"inside another":  {[]string{`"x, "812.abc-gzip"`}, false},
		"junk before":     {[]string{`junk, "812.abc-gzip"`}, true},
		"not closed":      {[]string{`"812.abc-gzip`}, false},
		"only weak":       {[]string{`W/`}, false},
		"empty":           {[]string{``}, false},
		"commas":          {[]string{`,, ,`}, false},
		"lower-case weak": {[]string{`w/"812.abc-gzip"`}, false},
	} {
		if got := matches(c.header, tag); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// However many ask at once, a body is encoded once.
func TestBodyIsEncodedOnce(t *testing.T) {
	var calls atomic.Int32
	b := newBody("x", "text/plain", func() (page, error) { calls.Add(1); return page{data: []byte("hello")}, nil })
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			if v := b.variant(encoding(i % numEncodings)); v.err != nil || len(v.data) == 0 {
				t.Errorf("%q %v", v.data, v.err)
			}
		})
	}
	wg.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("encoded %d times", n)
	}
	first, again := b.variant(gzipCoding).data, b.variant(gzipCoding).data
	if &first[0] != &again[0] {
		t.Error("compressed anew")
	}
}

// A body that could not be encoded is never an empty 200.
func TestBodyRemembersItsFailure(t *testing.T) {
	bad := errors.New("bad")
	b := newBody("x", "text/plain", func() (page, error) { return page{}, bad })
	for e := range encoding(numEncodings) {
		if v := b.variant(e); !errors.Is(v.err, bad) {
			t.Errorf("%s: %v", encodingNames[e], v.err)
		}
	}
	b = newBody("x", "text/plain", func() (page, error) { panic("no") })
	func() {
		defer func() { _ = recover() }()
		b.variant(identity)
	}()
	if v := b.variant(identity); v.err == nil {
		t.Error("no error after a panic")
	}
}
