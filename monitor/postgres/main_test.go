package postgres

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperVariable); dir != "" {
		os.Exit(clusterHelper(dir))
	}
	goleak.VerifyTestMain(WithTestCluster(m))
}

// helperVariable makes the test program run a cluster in the directory that it
// names until it is killed.
const helperVariable = "PHAROS_TEST_CLUSTER_DIR"

func clusterHelper(dir string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c, err := StartCluster(ctx, ClusterConfig{DataDir: dir, disposable: true})
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println("ready", c.URL())
	<-ctx.Done() // killed long before
	return 1
}
