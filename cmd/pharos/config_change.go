package main

import (
	"reflect"
	"slices"
	"strings"
)

// restartKeys are the keys, and the sections of keys, that a running process
// does not change: it holds their port, lock, database, identity or vantages.
// deploy/pharos.example.yaml says so of each.
var restartKeys = []string{"data_dir", "listen", "database", "key", "networks", "vantages"}

// needsRestart reports whether a change of the key takes effect only when the
// process starts anew.
func needsRestart(key string) bool {
	return slices.ContainsFunc(restartKeys, func(r string) bool { return key == r || strings.HasPrefix(key, r+".") })
}

// changedKeys are the keys whose values differ in other, in the order of the
// schema; a list counts as one. No value is part of the result.
func (c *Config) changedKeys(other *Config) []string {
	theirs := map[string]any{}
	leaves(reflect.ValueOf(*other), "", func(key string, v reflect.Value) { theirs[key] = v.Interface() })
	var changed []string
	leaves(reflect.ValueOf(*c), "", func(key string, v reflect.Value) {
		if a, b := plainList(v.Interface()), plainList(theirs[key]); !reflect.DeepEqual(a, b) && !(isEmptyList(a) && isEmptyList(b)) {
			changed = append(changed, key)
		}
	})
	return changed
}

// plainList is a value of which every way to write the same list is equal.
func plainList(v any) any {
	if b, ok := v.(Builtin); ok && !b.Default {
		return b.List
	}
	return v
}
