package probe_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/pharos-nostr/pharos/probe/relaytest"
)

func TestMain(m *testing.M) {
	relaytest.Main()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}
