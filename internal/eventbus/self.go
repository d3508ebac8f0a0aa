package eventbus

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// Self is the daemon as its own user: it sends requests through the local socket, as a tool
// does, so that it notices what would be broken for others. It is for one goroutine.
type Self struct {
	events *Bus
	socket string
	store  journal.Store
	conn   *rpc.Conn
	write  int // checks until the journal is written
}

// writeEvery is how many checks there are for each one that writes: the disk may be idle.
const writeEvery = 6

// Self returns a Self for the daemon behind the socket.
func (r *Bus) Self(socket string, store journal.Store) *Self {
	return &Self{events: r, socket: socket, store: store}
}

// Check goes the whole way once, from the socket through the broker and a handler to the
// journal and back. From time to time, and at once after a failure, it also checks that the
// journal can be written. It does not report a full disk, nor that the members of a cluster, or the servers
// of others, have stored nothing for long: the daemon reports that itself, and waits. A restart would not help.
func (s *Self) Check(ctx context.Context) error {
	err := s.ask(ctx)
	if err == nil && s.write <= 0 && !s.waits() {
		err = s.put(ctx)
	}
	if err != nil && s.waits() {
		err = nil
	}
	if s.write--; s.write < 0 {
		s.write = writeEvery - 1
	}
	if err != nil {
		s.Close()
		s.write = 0
	}
	return err
}

// Healthy returns what is wrong with a daemon that runs but does not serve, including a full
// disk.
func (s *Self) Healthy(ctx context.Context) error {
	if err := s.failing(); err != nil {
		return err
	}
	return s.Check(ctx)
}

// failing returns why nothing can be stored. The journal also knows for how long it has stored nothing.
func (s *Self) failing() error { return cmp.Or(s.store.Err(), s.events.journal.Err()) }

// waits reports whether nothing can be stored for a reason that ends without a restart. Of those of the journal alone
// that is only one with which nobody answers now.
func (s *Self) waits() bool {
	return s.store.Err() != nil || journal.Unanswered(s.events.journal.Err())
}

// ask asks for the end of the own journal: a daemon that cannot read a mirror serves all the same. The
// connection is kept, so that a check needs no new descriptors.
func (s *Self) ask(ctx context.Context) error {
	if s.conn == nil {
		conn, err := rpc.Dial(s.socket)
		if err != nil {
			return err
		}
		s.conn = conn
	}
	var end protocol.End
	if err := s.conn.Ask(ctx, protocol.OpEnd, protocol.EndOf{Own: true}, &end); err != nil {
		return fmt.Errorf("ask the own daemon: %w", err)
	}
	return nil
}

func (s *Self) put(ctx context.Context) error {
	table, err := s.events.tables.get(ctx, "self")
	if err == nil {
		err = table.Put(ctx, "checked", []byte(time.Now().UTC().Format(time.RFC3339)))
	}
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

// Close ends the connection.
func (s *Self) Close() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}
