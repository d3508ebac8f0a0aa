package upstream

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
)

// allAtOnce is a minion that is connected to these masters at the same time.
func allAtOnce(t *testing.T, masters, more string) *config.Minion {
	t.Helper()
	cfg := settings(t, "master: ["+masters+"]\nverify_master_pubkey_sign: True\n"+more)
	if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func uplinksOf(cfg *config.Minion) *Uplinks {
	return New(Setup{Config: cfg, Log: slog.New(slog.DiscardHandler)})
}

func leads(all *Uplinks) string {
	var list []int
	for i := range all.All() {
		list = append(list, all.Lead(i))
	}
	return fmt.Sprint(list)
}

// named is the list of a cluster in which the members have the fingerprints F of their names.
func named(names ...string) *protocol.Cluster {
	c := cluster(names...)
	for i := range c.Members {
		c.Members[i].Key = finger(names[i])
	}
	return c
}

// finger looks like the fingerprint of a key.
func finger(name string) string {
	return strings.TrimSuffix(strings.Repeat(fmt.Sprintf("%02x:", name[0]), 32), ":")
}

// TestMastersOfOneSystem: masters are one system if all of them name each other. Whoever claims to belong to others gets
// nothing of what is for them.
func TestMastersOfOneSystem(t *testing.T) {
	all := named("A", "B", "C")
	for what, test := range map[string]struct {
		a, b, c *protocol.Cluster
		want    string
	}{
		"a cluster":                          {all, all, all, "[0 0 0]"},
		"nothing in common":                  {nil, nil, nil, "[0 1 2]"},
		"a master beside a cluster":          {named("A", "B"), named("A", "B"), nil, "[0 0 2]"},
		"two clusters":                       {named("A"), named("B", "C"), named("B", "C"), "[0 1 1]"},
		"one claims to belong to the others": {named("A", "B"), named("A", "B"), all, "[0 0 2]"},
		"the first one claims it":            {all, named("B", "C"), named("B", "C"), "[0 1 1]"},
		"it claims a master that is alone":   {named("A", "B"), nil, nil, "[0 1 2]"},
		"one that is away named it once":     {all, named("A", "B"), all, "[0 0 2]"},
		"its key is not known yet":           {cluster("A", "B", "C"), all, all, "[0 1 1]"},
	} {
		up := uplinksOf(allAtOnce(t, "A, B, C", ""))
		for i, list := range []*protocol.Cluster{test.a, test.b, test.c} {
			up.systems.learn(i, finger(string("ABC"[i])), list)
		}
		if got := leads(up); got != test.want {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
	}
}

// TestSystemsAreKept: what is known is known after a restart, for the same addresses, until a master says
// otherwise or has another key.
func TestSystemsAreKept(t *testing.T) {
	cfg := allAtOnce(t, "A, B", "")
	both := named("A", "B")
	up := uplinksOf(cfg)
	up.systems.learn(0, finger("A"), both)
	up.systems.learn(1, finger("B"), both)
	again := uplinksOf(cfg)
	if got := leads(again); got != "[0 0]" {
		t.Errorf("after a restart: %s", got)
	}
	started := cluster("A", "B") // it has not met the other one since its start
	started.Members[0].Key = finger("A")
	again.systems.learn(0, finger("A"), started)
	if got := leads(again); got != "[0 0]" {
		t.Errorf("a key that a member does not know any more is forgotten: %s", got)
	}
	moved := *cfg
	moved.Master = []string{"C", "B", "A"}
	if got := leads(uplinksOf(&moved)); got != "[0 1 1]" {
		t.Errorf("in another order, and with another master: %s", got)
	}
	again.systems.learn(1, finger("X"), both)
	if got := leads(again); got != "[0 1]" {
		t.Errorf("with a key that the others do not name: %s", got)
	}
	again.systems.learn(1, finger("B"), both)
	again.systems.learn(0, finger("A"), nil)
	if got := leads(uplinksOf(cfg)); got != "[0 1]" {
		t.Errorf("a master that has left the cluster: %s", got)
	}
	if err := os.WriteFile(filepath.Join(cfg.PKIDir, systemsFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := leads(uplinksOf(cfg)); got != "[0 1]" {
		t.Errorf("with a damaged file: %s", got)
	}
	for what, other := range map[string]*config.Minion{
		"without signatures":  settings(t, "master: [A, B]\n"),
		"without the cluster": allAtOnce(t, "A, B", "master_cluster: False\n"),
		"one after the other": allAtOnce(t, "A, B", "master_type: failover\n"),
	} {
		if uplinksOf(other).systems != nil {
			t.Errorf("%s: masters are taken for one system", what)
		}
	}
}

// TestOnlySignedKeysAreOfACluster: nobody has vouched for a key that is only pinned.
func TestOnlySignedKeysAreOfACluster(t *testing.T) {
	for basis, want := range map[basis]string{onSign: "[0 0]", onPin: "[0 1]", onFirst: "[0 1]", onOpening: "[0 1]"} {
		up := uplinksOf(allAtOnce(t, "A, B", ""))
		keys := []pki.PublicKey{generate(t).Public(), generate(t).Public()}
		list := cluster("A", "B")
		for i := range keys {
			list.Members[i].Key = keys[i].SHA256()
		}
		for i, u := range up.All() {
			s := &Session{Connection: &Connection{Master: keys[i], basis: onSign}, Up: u}
			if i == 1 {
				s.basis = basis
			}
			s.learn(list)
		}
		if got := leads(up); got != want {
			t.Errorf("basis %d: %s, want %s", basis, got, want)
		}
	}
}

// TestAnotherMemberGetsTheReportsOfAJob: while the master that has sent a job is away, a member of its cluster is told about it, and no
// other master.
func TestAnotherMemberGetsTheReportsOfAJob(t *testing.T) {
	up := uplinksOf(allAtOnce(t, "A, B, C", ""))
	list := cluster("A", "B", "C")
	var sessions []*Session
	for i, u := range up.All() {
		key := generate(t).Public()
		list.Members[i].Key = key.SHA256()
		sessions = append(sessions, &Session{Connection: &Connection{Master: key, basis: onSign}, Up: u})
	}
	list.Members = list.Members[1:] // the first one is alone
	sessions[1].learn(list)
	sessions[2].learn(list)
	for i, u := range up.All() {
		u.session.Store(sessions[i])
	}
	sender := Sender{Up: up.All()[2], key: sessions[2].Master}
	if got := sender.Session(); got != sessions[2] {
		t.Error("the master that has sent it is not told")
	}
	up.All()[2].session.Store(nil)
	if got := sender.Session(); got != sessions[1] {
		t.Error("no other member is told")
	}
	if got := (Sender{Up: up.All()[2], key: generate(t).Public()}).Session(); got != nil {
		t.Error("a member is told of a job of a master that was there before")
	}
	up.All()[1].session.Store(nil)
	if got := sender.Session(); got != nil {
		t.Error("a master that is not of the cluster is told")
	}
	up.All()[0].session.Store(nil)
	if got := (Sender{Up: up.All()[0], key: sessions[0].Master}).Session(); got != nil {
		t.Error("nobody is connected")
	}
}
