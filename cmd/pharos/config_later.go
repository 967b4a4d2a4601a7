package main

import (
	"reflect"
	"strconv"
	"strings"
)

// Keys whose feature this version does not have. Their defaults are accepted;
// anything else is refused, so that nobody believes to have switched on what
// does not happen.
var later = []struct{ key, feature string }{
	{"publish.upstreams", "publishing to other relays is"},
	{"publish.indexers", "publishing to other relays is"},
	{"publish.rate", "publishing to other relays is"},
	{"publish.delete_on_offline", "publishing to other relays is"},
	{"retention.hour_vantage", "the roll-up of history is"},
	{"retention.hour", "the roll-up of history is"},
	{"retention.day_vantage", "the roll-up of history is"},
	{"retention.day", "the roll-up of history is"},
	{"alerts", "alerts are"},
}

// laterFeatures names every key that asks for a feature that is not there.
func laterFeatures(c *Config) Problems {
	var problems Problems
	def := Default()
	defaults := map[string]any{}
	leaves(reflect.ValueOf(def), "", func(key string, v reflect.Value) { defaults[key] = v.Interface() })

	refuse := func(key, pattern string, v, dflt any) {
		if reflect.DeepEqual(v, dflt) || isEmptyList(v) && isEmptyList(dflt) {
			return
		}
		for _, l := range later {
			if pattern == l.key || strings.HasPrefix(pattern, l.key+".") {
				problems = append(problems, Problem{
					Key: key, Text: "must keep its default: " + l.feature + " not in this version yet",
				})
				return
			}
		}
	}
	leaves(reflect.ValueOf(*c), "", func(key string, v reflect.Value) { refuse(key, key, v.Interface(), defaults[key]) })
	for i, vantage := range c.Vantages {
		prefix := "vantages[" + strconv.Itoa(i) + "]"
		leaves(reflect.ValueOf(vantage), "", func(key string, v reflect.Value) {
			refuse(prefix+"."+key, "vantages."+key, v.Interface(), reflect.Zero(v.Type()).Interface())
		})
	}
	return problems
}

func isEmptyList(v any) bool {
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Slice && r.Len() == 0
}
