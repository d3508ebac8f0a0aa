package rpc

import (
	"fmt"
	"testing"

	"github.com/brinebus/brine/internal/bus"
)

// TestPiecesOfAllAreBounded: requests that never end hold a limited amount of memory, however
// many senders there are. Those of the principal that holds the most are dropped, and a large
// request of another one is assembled meanwhile.
func TestPiecesOfAllAreBounded(t *testing.T) {
	const piece = 512 << 10
	s := &Server{partial: map[string]*partial{}, halves: map[string]int{}, held: map[string]int{}, bodies: map[string]int{}}
	e := bus.MasterEndpoints.Find(bus.RoleMinion, "messages")
	data := make([]byte, piece)
	send := func(id string, k kind) (size int, done bool, err error) {
		from, m := bus.Identity{Role: bus.RoleMinion, Name: id}, newMessage("", k, data)
		m.Reply = "_INBOX.minion." + id + ".1"
		body, done, err := s.assemble(from, e, s.read(from, m))
		if n := s.heldOfAll(); n > maxHeldOfAll {
			t.Fatalf("%d bytes are held, want at most %d", n, maxHeldOfAll)
		}
		return body.size(), done, err
	}
	for n := range 10 {
		for range 60 << 20 / piece {
			if _, _, err := send(fmt.Sprint("evil", n), kindPart); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 20 {
		if _, _, err := send("web1", kindPart); err != nil {
			t.Fatal(err)
		}
	}
	if size, done, err := send("web1", kindItem); size != 21*piece || !done || err != nil {
		t.Errorf("a request of 10 MB beside those: %d bytes, done %v, %v", size, done, err)
	}
	busy := 0
	for n := range 10 {
		if _, _, err := send(fmt.Sprint("evil", n), kindItem); CodeOf(err) == Busy {
			busy++
		}
	}
	if busy < 8 || s.heldOfAll() != 0 || len(s.partial) != 0 {
		t.Errorf("%d of 10 were told to wait; %d bytes of %d requests are left", busy, s.heldOfAll(), len(s.partial))
	}
}

// TestBodiesOfAllAreBounded: large requests being handled leave room for small ones.
func TestBodiesOfAllAreBounded(t *testing.T) {
	s := &Server{ctx: t.Context(), under: maxUnderOfAll - 1<<20, bodies: map[string]int{"minion:evil": 60 << 20}}
	if err := s.busy("minion:web1", booked{Request: &Request{}, size: 8 << 20}); CodeOf(err) != Busy {
		t.Errorf("a large one too many: %v", err)
	}
	if err := s.busy("minion:web1", booked{Request: &Request{}, size: modestPart}); err != nil {
		t.Errorf("a small one: %v", err)
	}
}
