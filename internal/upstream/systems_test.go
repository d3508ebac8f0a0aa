package upstream

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
			up.systems.learn(i, finger(string("ABC"[i])), list, true)
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
	up.systems.learn(0, finger("A"), both, true)
	up.systems.learn(1, finger("B"), both, true)
	again := uplinksOf(cfg)
	if got := leads(again); got != "[0 0]" {
		t.Errorf("after a restart: %s", got)
	}
	started := cluster("A", "B") // it has not met the other one since its start
	started.Members[0].Key = finger("A")
	again.systems.learn(0, finger("A"), started, true)
	if got := leads(again); got != "[0 0]" {
		t.Errorf("a key that a member does not know any more is forgotten: %s", got)
	}
	moved := *cfg
	moved.Master = []string{"C", "B", "A"}
	if got := leads(uplinksOf(&moved)); got != "[0 1 1]" {
		t.Errorf("in another order, and with another master: %s", got)
	}
	again.systems.learn(1, finger("X"), both, true)
	if got := leads(again); got != "[0 1]" {
		t.Errorf("with a key that the others do not name: %s", got)
	}
	again.systems.learn(1, finger("B"), both, true)
	again.systems.learn(0, finger("A"), nil, true)
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

// said has masters say who is a member, in this order; one that is named with "!" is connected to anew.
func (y *systems) said(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		who, names, is := strings.Cut(word, ":")
		anew := strings.HasPrefix(who, "!")
		uplink := slices.IndexFunc(y.met, func(m met) bool {
			return m.Address == WithPort(string(strings.ToUpper(strings.Trim(who, "!"))[0]), 4506)
		})
		var list *protocol.Cluster
		if is {
			list = cluster(strings.Split(names, "")...)
			for i := range list.Members {
				list.Members[i].Key = keyOf(names[i : i+1]).SHA256()
			}
		}
		y.learn(uplink, keyOf(strings.Trim(who, "!")).SHA256(), list, anew)
	}
}

// keyOf is always the same key of a name.
func keyOf(name string) pki.PublicKey {
	key, _ := keysOf.LoadOrStore(name, sync.OnceValue(func() pki.PublicKey {
		key, err := pki.Generate(pki.Ed25519, 0)
		if err != nil {
			panic(err)
		}
		return key.Public()
	}))
	return key.(func() pki.PublicKey)()
}

var keysOf sync.Map

// got is who gets what was put for each uplink in a generation, and "-" for nobody.
func got(all *Uplinks, generations []string) string {
	var words []string
	for i := range all.All() {
		_, _, list := all.Heirs(i, generations[i])
		word := ""
		for _, s := range list {
			word += s.Name
		}
		words = append(words, cmp.Or(word, "-"))
	}
	return strings.Join(words, " ")
}

func nameOf(s *Session) string {
	if s == nil {
		return ""
	}
	return s.Name
}

func generations(all *Uplinks) (list []string) {
	for i := range all.All() {
		list = append(list, all.Generation(i))
	}
	return list
}

// TestFormerMembers: an uplink whose master was of a system stays with it when the others do not name that any more, so that
// they get what waits there. What is put for another master there is for that, and nothing that was put before.
//
// The second and third masters are connected, and the first one is where it says hello at the end; its key is that of its name.
func TestFormerMembers(t *testing.T) {
	for what, test := range map[string]struct {
		said      []string // after all have named each other
		connected string   // keys of those that are
		leads     string
		before    string // who gets what was put before for each
		now       string // and what is put now
		sender    string // who is told of a job that the first one has sent before; "" if it does not matter
	}{
		"nothing has happened":                   {nil, "ABC", "[0 0 0]", "ABC ABC ABC", "ABC ABC ABC", "A"},
		"removed":                                {[]string{"B:BC", "C:BC"}, " BC", "[0 0 0]", "BC BC BC", "BC BC BC", "B"},
		"removed, and connected":                 {[]string{"B:BC", "C:BC"}, "ABC", "[0 0 0]", "BC BC BC", "BC BC BC", "B"},
		"removed, and one does not say so yet":   {[]string{"B:BC"}, "AB ", "[0 0 0]", "B B B", "B B B", ""},
		"removed, and it says it was the others": {[]string{"B:BC", "C:BC", "A:A"}, "ABC", "[0 1 1]", "BC BC BC", "A BC BC", ""},
		"its key is used once more":              {[]string{"B:BC", "C:BC", "!A:ABC"}, "ABC", "[0 1 1]", "BC BC BC", "A BC BC", "B"},
		"so, as a single master":                 {[]string{"B:BC", "C:BC", "!A"}, "ABC", "[0 1 1]", "BC BC BC", "A BC BC", ""},
		"so, while the others are away":          {[]string{"B:BC", "C:BC", "!A"}, "A  ", "[0 1 1]", "- - -", "A - -", "-"},
		"it becomes a single master":             {[]string{"!A"}, "ABC", "[0 1 1]", "BC BC BC", "A BC BC", "B"},
		"it does, and the others are lost":       {[]string{"!A"}, "A  ", "[0 1 1]", "A - -", "A - -", "A"},
		"another master is there":                {[]string{"B:BC", "C:BC", "!a"}, "aBC", "[0 1 1]", "BC BC BC", "a BC BC", "B"},
		"so, while the others are away for now":  {[]string{"!a"}, "a  ", "[0 1 1]", "- - -", "a - -", "-"},
		"a new member is there":                  {[]string{"B:BC", "C:BC", "!a:aBC", "B:aBC", "C:aBC"}, "aBC", "[0 0 0]", "aBC aBC aBC", "aBC aBC aBC", ""},
		"a new member that is known already":     {[]string{"B:aBC", "C:aBC", "!a:aBC"}, "aBC", "[0 0 0]", "aBC aBC aBC", "aBC aBC aBC", ""},
		"it repeats what it has said":            {[]string{"B:BC", "C:BC", "A:ABC"}, "ABC", "[0 0 0]", "BC BC BC", "BC BC BC", ""},
		"it has put the others out before":       {[]string{"A:A", "B:BC", "C:BC"}, "ABC", "[0 1 1]", "A A A", "A BC BC", ""},
		"it is let in again":                     {[]string{"B:BC", "C:BC", "B:ABC", "C:ABC"}, "ABC", "[0 0 0]", "ABC ABC ABC", "ABC ABC ABC", ""},
		"two are removed":                        {[]string{"C:C"}, "A C", "[0 0 0]", "C C C", "C C C", ""},
		"two, and the last one gets a new key":   {[]string{"C:C", "!c:c"}, "A c", "[0 0 0]", "c c c", "c c c", ""},
		"two, and the last one is alone":         {[]string{"C:C", "!C"}, " BC", "[0 0 0]", "C C C", "C C C", ""},
		"two, one key is at the last address":    {[]string{"B:BC", "C:C"}, "  A", "[0 0 0]", "- - -", "- - -", ""},
		"the others get new keys in turn":        {[]string{"B:BC", "C:BC", "!b:bC", "C:bC", "!c:bc", "b:bc"}, " bc", "[0 0 0]", "bc bc bc", "bc bc bc", ""},
		"they get new keys together":             {[]string{"B:BC", "C:BC", "!b:bc", "!c:bc"}, " bc", "[0 0 0]", "bc bc bc", "bc bc bc", ""},
		"all get new keys together":              {[]string{"!a:abc", "!b:abc", "!c:abc"}, "abc", "[0 0 0]", "abc abc abc", "abc abc abc", ""},
		"it leaves, one by one":                  {[]string{"!A", "B:BC"}, "A  ", "[0 1 1]", "- - -", "A - -", ""},
	} {
		t.Run(what, func(t *testing.T) {
			cfg := allAtOnce(t, "A, B, C", "")
			up := uplinksOf(cfg)
			up.systems.said(t, "!A:ABC", "!B:ABC", "!C:ABC")
			first := generations(up)
			up.systems.said(t, test.said...)
			for _, after := range []string{"", " after a restart"} {
				if after != "" {
					up = uplinksOf(cfg)
				}
				for i, u := range up.All() {
					if key := test.connected[i : i+1]; key != " " {
						u.session.Store(&Session{Connection: &Connection{Master: keyOf(key)}, Up: u, Name: key})
					}
				}
				if is := leads(up); is != test.leads {
					t.Errorf("leads%s: %s, want %s", after, is, test.leads)
				}
				if is := cmp.Or(nameOf((Sender{Up: up.All()[0], key: keyOf("A")}).Session()), "-"); test.sender != "" && is != test.sender {
					t.Errorf("reports of a job that the first one has sent before%s go to %s, want %s", after, is, test.sender)
				}
				if is := got(up, first); is != test.before {
					t.Errorf("what was put before%s is for %s, want %s", after, is, test.before)
				}
				if is := got(up, generations(up)); is != test.now {
					t.Errorf("what is put now%s is for %s, want %s", after, is, test.now)
				}
			}
		})
	}
}
