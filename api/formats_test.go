package api

import "testing"

func TestAcceptable(t *testing.T) {
	for name, c := range map[string]struct {
		header []string
		want   string // "" = nothing suits
	}{
		"none":               {nil, "json"},
		"empty":              {[]string{""}, "json"},
		"commas":             {[]string{", ,"}, "json"},
		"anything":           {[]string{"*/*"}, "json"},
		"json":               {[]string{"application/json"}, "json"},
		"case":               {[]string{"Text/CSV"}, "csv"},
		"parameters":         {[]string{"text/csv; header=present; q=0.5"}, "csv"},
		"any text":           {[]string{"text/*"}, "text"},
		"any application":    {[]string{"application/*"}, "json"},
		"weights":            {[]string{"application/json;q=0.5, application/x-ndjson;q=0.6"}, "ndjson"},
		"same weight":        {[]string{"application/x-ndjson, text/csv, text/plain, application/json"}, "json"},
		"two lines":          {[]string{"text/csv;q=0.1", "text/plain;q=0.2"}, "text"},
		"specific wins":      {[]string{"*/*, application/json;q=0"}, "text"},
		"range is refused":   {[]string{"*/*, application/*;q=0, text/*;q=0, text/csv;q=0.1"}, "csv"},
		"order of no matter": {[]string{"text/csv;q=0.1, text/*;q=0.9"}, "text"},
		"browser":            {[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, "json"},
		"html only":          {[]string{"text/html"}, ""},
		"refused":            {[]string{"application/json;q=0"}, ""},
		"all refused":        {[]string{"*/*;q=0"}, ""},
		"malformed weight":   {[]string{"application/json;q=x"}, ""},
		"junk":               {[]string{";;=,\x00/"}, ""},
		"substring":          {[]string{"application/jsonx"}, ""},
		"no format by URL":   {[]string{"application/json;q=0.1"}, "json"},
	} {
		f, ok := acceptable(c.header)
		got := ""
		if ok {
			got = formats[f].name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
