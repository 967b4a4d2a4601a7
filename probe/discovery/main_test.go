package discovery_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// elapse lets virtual time pass.
func elapse(d time.Duration) { <-time.After(d) }
