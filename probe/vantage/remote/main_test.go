package remote_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		beKilled(dir, os.Getenv(victimURL), os.Getenv(victimKey))
		return
	}
	goleak.VerifyTestMain(m)
}
