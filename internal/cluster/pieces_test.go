package cluster

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

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

// TestSinceWhenAMinionIsConnected: what counts is how long ago it has connected, whatever the clock of the other member shows.
func TestSinceWhenAMinionIsConnected(t *testing.T) {
	began := time.Now().Add(-time.Hour)
	said := presence{Came: &Minion{ID: "web1", Since: began}, All: []Minion{{ID: "web2", Since: began}, {ID: "web3"}}}.sent()
	const wrong = 72 * time.Hour
	said.At, said.Came.Since, said.All[0].Since = said.At.Add(wrong), said.Came.Since.Add(wrong), said.All[0].Since.Add(wrong)
	b, err := json.Marshal(said)
	if err == nil {
		said = presence{}
		err = json.Unmarshal(b, &said)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []Minion{*said.Came, said.All[0]} {
		if off := said.ours(m.Since).Sub(began).Abs(); off > 10*time.Second {
			t.Errorf("%s: the time is wrong by %s", m.ID, off)
		}
	}
	if since := said.ours(said.All[1].Since); !since.IsZero() {
		t.Errorf("%s: a member that does not say has said %s", said.All[1].ID, since)
	}
}
