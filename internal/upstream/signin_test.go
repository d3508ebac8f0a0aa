package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/documented"
)

// TestSignInAsInSalt asks masters that answer as in the cases: how often a minion asks, and
// what comes of it.
func TestSignInAsInSalt(t *testing.T) {
	const waits = "a minion whose key waits does not ask again: the master informs it when the key is accepted"
	documented.Differences(t, waits)
	text, err := os.ReadFile("testdata/failover.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			ID, Kind, Result string
			Answers          []string
			SignIns          int `json:"sign_ins"`
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var count documented.Comparison
	for _, c := range file.Cases {
		if c.Kind != "authenticate_retry" {
			continue
		}
		t.Run(c.Answers[0], func(t *testing.T) {
			asked, taken := signIn(t, c.Answers[0])
			same := asked == c.SignIns && taken == (c.Result == "authenticated")
			count.Count(documented.Refusal(same, taken, c.Result == "authenticated"))
			if listed := c.ID == "master_failover-0259"; same == listed {
				t.Errorf("%s: asked %d times, taken %v; Salt asked %d times: %s; listed as different: %v", c.ID, asked, taken, c.SignIns, c.Result, listed)
			}
		})
	}
	count.Stands(t, "logins of a minion")
}

// signIn asks a master that answers with this once. One whose key waits is accepted in the
// end, as it is not in the case, so that nobody waits forever.
func signIn(t *testing.T, answer string) (asked int, taken bool) {
	state := map[string]protocol.KeyState{"retry": protocol.KeyPending, "full": protocol.KeyFull, "accepted": protocol.KeyAccepted}
	var m *master
	switch answer {
	case "timeout":
		m = startMaster(t)
	case "exc":
		m = &master{Bus: bustest.Start(t)}
		m.Server.Handle("ask", func(context.Context, *rpc.Request) error {
			m.asked.Add(1)
			return errors.New("boom")
		})
		if err := m.Server.Start(); err != nil {
			t.Fatal(err)
		}
	default:
		m = startMaster(t, state[answer])
	}
	o := m.options(t)
	if answer == "timeout" {
		o.Timeout = 300 * time.Millisecond
	}
	if answer == "accepted" {
		m.Accept(o.ID, o.Key)
	}
	l, err := upstream.Connect(t.Context(), o)
	if err == nil {
		defer l.Close()
		if taken = l.Ready(); answer == "retry" {
			m.states <- protocol.KeyAccepted
			taken = l.Wait(t.Context()) == nil
		}
	}
	return int(m.asked.Load()), taken
}
