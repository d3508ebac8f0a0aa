package cluster

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// pieces are the messages that were published.
type pieces []*nats.Msg

func (p *pieces) PublishMsg(m *nats.Msg) error {
	*p = append(*p, m)
	return nil
}

// TestAHeartbeatWithinALongList: the minions of a member come in several pieces, to one member, and a heartbeat to
// all members between them.
func TestAHeartbeatWithinALongList(t *testing.T) {
	x := New(Options{Name: "m1", Log: slog.New(slog.DiscardHandler)})
	said := func(subject string, p presence) (list pieces) {
		t.Helper()
		body, err := json.Marshal(p)
		if err == nil {
			err = rpc.Publish(&list, subject+".m2", body, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	full := presence{Run: "r", N: 7, Full: true}
	for n := range 40_000 {
		full.All = append(full.All, Minion{ID: salt.MinionID(fmt.Sprint("web", n)), Key: bus.KeyToken(make([]byte, 32))})
	}
	list := said(bus.MemberSubject("m1", kindPresence), full)
	heartbeat := said(bus.MembersSubject(kindPresence), presence{Run: "r", N: 7})
	if len(list) < 2 || len(heartbeat) != 1 {
		t.Fatalf("the list has %d pieces, and the heartbeat %d", len(list), len(heartbeat))
	}
	for _, m := range list {
		x.receive(m)
		x.receive(heartbeat[0])
	}
	if n := len(x.peers["m2"].minions); n != len(full.All) {
		t.Errorf("%d minions are known of %d", n, len(full.All))
	}
}
