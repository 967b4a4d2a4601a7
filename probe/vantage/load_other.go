//go:build !unix

package vantage

import "time"

func cpuTime() (time.Duration, bool) { return 0, false }

func descriptors() (used, limit int, ok bool) { return 0, 0, false }
