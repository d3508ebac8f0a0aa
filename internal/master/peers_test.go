package master_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/test/deadline"
)

// Many minions publish to all at once: no answer is lost, none is counted twice, and
// none is told to another than who asked.
func TestManyPublishAtOnce(t *testing.T) {
	const n = 25
	w := start(t, "auto_accept: True\npeer: {.*: [test.ping]}\n")
	minions := make([]*upstream.Connection, n)
	for i := range minions {
		minions[i] = w.minion(salt.MinionID(fmt.Sprintf("m%03d", i)), pong)
	}
	var wg sync.WaitGroup
	for i, l := range minions {
		wg.Go(func() {
			q := publication("*", "test.ping")
			q.Timeout = 60
			begun, got, err := publish(t, l.Conn, q)
			if err != nil || len(begun.Minions) != n || len(got) != n {
				t.Errorf("minion %d: %d minions, %d answers, %v; want %d", i, len(begun.Minions), len(got), err, n)
			}
			for id, u := range got {
				if u.State != job.Done {
					t.Errorf("minion %d: %s is %s, want done", i, id, u.State)
				}
			}
		})
	}
	deadline.Call(t, wg.Wait, "wg")
}
