// Package clustertest starts what a member of a cluster has above its bus, for the tests of the
// packages above that: a journal with copies, and the exchange with the other members.
package clustertest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// startTime is how long the members may take to elect the leader of a new journal.
const startTime = 2 * time.Minute

// Starting returns a context for what a member opens when it starts.
func Starting(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(journal.Starting(t.Context()), startTime)
	t.Cleanup(cancel)
	return ctx
}

// Journal opens the journal of a member, with copies at three. It is closed by the end of the test,
// or before.
func Journal(t testing.TB, m *bustest.Member) *journal.Journal {
	t.Helper()
	j, err := journal.Open(Starting(t), m.Conn(), journal.Options{
		MaxAge: time.Hour, Store: m.Store(), Copies: 3, Name: m.Name, Server: m.Name, Names: filepath.Join(m.Dir, "names"),
	})
	if err != nil {
		t.Fatalf("the journal of %s: %v", m.Name, err)
	}
	t.Cleanup(j.Close)
	return j
}

// Exchange starts the exchange of a member without minions. Its caller stops it.
func Exchange(t testing.TB, m *bustest.Member) *cluster.Exchange {
	t.Helper()
	x := cluster.New(cluster.Options{Name: m.Name, Conn: m.Conn(), Minions: noMinions{}, Log: m.Log})
	if err := x.Start(); err != nil {
		t.Fatalf("the exchange of %s: %v", m.Name, err)
	}
	return x
}

// noMinions is for an exchange that only knows the members.
type noMinions struct{}

func (noMinions) Came(string, cluster.Minion) {}
func (noMinions) Went(string, salt.MinionID)  {}
