package vantage_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pharos-nostr/pharos/probe/relaytest"
)

func TestMain(m *testing.M) {
	relaytest.Main()
	goleak.VerifyTestMain(m)
}
