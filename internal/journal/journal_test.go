package journal_test

import (
	"brine/internal/broker"
	"brine/internal/bus"
	"log/slog"
	"testing"
)

// startStore starts a broker without a listener on the store in dir.
func startStore(t testing.TB, dir string) *broker.Broker {
	t.Helper()
	b, err := broker.Start(broker.Options{
		Name: "test", StoreDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Admit: func(broker.Peer) bus.Identity { return bus.Identity{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}
