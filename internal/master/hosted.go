package master

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/membership"
)

// storage is what the master needs to know of its store.
type storage interface {
	journal.Store
	// Flush returns when everything acknowledged for the stream is on the disk.
	Flush(stream string) error
}

// storage returns the store: that of the own broker, or with nats_jetstream the one at the servers.
func (m *Master) storage() storage {
	if m.hosted != nil {
		return m.hosted.Store()
	}
	return m.broker.Store()
}

// storeConn is the connection to the JetStream with the journal.
func (m *Master) storeConn() *nats.Conn {
	if m.hosted != nil {
		conn, _ := m.external.Journal()
		return conn
	}
	return m.broker.Conn()
}

// place is where the store stands among others.
func (m *Master) place() membership.Place {
	if m.hosted != nil {
		return m.hosted.Place()
	}
	return m.member.Place()
}

// joinOthers waits until the journal may be opened: in a cluster for the other members, with
// nats_jetstream until no other master is at work.
func (m *Master) joinOthers(ctx context.Context) error {
	if m.hosted != nil {
		if m.starting != nil {
			m.starting(m.external.starting)
		}
		return m.hosted.Join(ctx, m.external.External, m.waits)
	}
	return m.member.Join(ctx, m.broker, m.waits)
}

// waits tells the service manager what the start waits for. It is called every ten seconds, and
// asks it not to end the start for as long as that.
func (m *Master) waits(line string) { m.status(line + "\nEXTEND_TIMEOUT_USEC=60000000") }

// waitsEvery is how often the service manager hears that a start goes on.
const waitsEvery = 10 * time.Second

// tellWhile calls tell now and then, until the function that it returns is called.
func tellWhile(tell func()) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(waitsEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				tell()
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// journalOptions are those of the journal.
func (m *Master) journalOptions(o journal.Options) journal.Options {
	if m.hosted != nil {
		return m.hosted.Journal(o)
	}
	return m.member.Journal(o)
}

// brokerDir is the directory for the store of the own broker, "" if that stores nothing.
func (m *Master) brokerDir() string {
	if m.hosted != nil {
		return ""
	}
	return m.storeDir()
}

// watchStore starts what looks for damage in the own store.
func (m *Master) watchStore() {
	if m.hosted == nil {
		m.broker.WatchStore(m.tellLost)
	}
}
