package broker_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// Each role tries each subject, its own and that of another identity, as a publisher, a
// subscriber and a member of a queue group. The table decides: what it does not allow is
// refused and reaches nobody.
func TestEveryRoleOnEverySubject(t *testing.T) {
	t.Parallel()
	for _, role := range []bus.Role{bus.RoleMinion, bus.RoleCaller, bus.RoleClient, bus.RoleRemote, bus.RoleGuest, bus.RoleUnaccepted, bus.RoleUser} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			b := bustest.StartStore(t)
			victim := b.As(t, bus.RoleMinion, "victim")
			c := b.As(t, role, "web1.example")
			subjects := probes(c.Self, victim.Self)
			tryPublish(t, b.Conn(), rights, c, subjects)
			trySubscribe(t, b.Conn(), rights, c, subjects, "")
			trySubscribe(t, b.Conn(), rights, c, subjects, "workers")
		})
	}
}

// A key that shows an id which it has no right to is unaccepted, whatever it says.
func TestForeignIDWithOwnKey(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	victim := b.As(t, bus.RoleMinion, "victim")
	c, err := b.Dial(bustest.Claim{ID: "victim", Key: bustest.Key(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Self.Role = bus.RoleUnaccepted
	subjects := probes(c.Self, victim.Self)
	tryPublish(t, b.Conn(), rights, c, subjects)
	trySubscribe(t, b.Conn(), rights, c, subjects, "")
	trySubscribe(t, b.Conn(), rights, c, subjects, "workers")
}

// rights are the rights on the bus that the tests start.
var rights = bustest.Endpoints.Rights()

// probes returns all subjects of the table for the identity itself, for a victim and for
// mixtures of both, with and without their wildcards, and the subjects of the server and the
// journal.
func probes(self, victim bus.Identity) []string {
	list := []string{
		">", "*.>", "*", "salt.>", "salt.*.*.*", "salt.minion.>", "salt.minion.*.job", "salt.minion.*.req.*", "salt.user.>", "salt.key.>",
		"_INBOX.>", "_INBOX.*.*.>", "_INBOX.master.>", "_INBOX.master.x", "_R_.>", "_GR_.>", "_SYS_.>",
		"salt.event.>", "salt.event.mytag", "salt.event.salt.job.20261121113344286549.new", "salt.queue.>", "salt.queue.OUTBOX",
		"$JS.API.>", "$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.DELETE.EVENTS", "$JS.API.STREAM.PURGE.EVENTS", "$JS.API.STREAM.RESTORE.EVENTS",
		"$JS.API.STREAM.MSG.GET.EVENTS", "$JS.API.DIRECT.GET.EVENTS", "$JS.API.CONSUMER.CREATE.EVENTS", "$JS.API.CONSUMER.MSG.NEXT.EVENTS.x",
		"$JS.ACK.>", "$JS.ACK.EVENTS.x.1.1.1.1.1", "$JS.FC.EVENTS.x", "$JS.EVENT.>", "$KV.>", "$KV.grains.victim", "$O.>",
		"$SYS.>", "$SYS.REQ.USER.INFO", "$SYS.REQ.SERVER.PING", "$SYS.ACCOUNT.SALT.DISCONNECT", "$SRV.PING", "$NRG.x",
		"salt", "salt.minion", "salt.minion.job", "other",
		bus.MemberRoot, bus.MemberRoot + ".>", bus.MembersSubject("presence"), bus.MemberSubject("m1", "job"),
	}
	mixed := self
	mixed.Nonce = victim.Nonce
	thief := victim
	thief.Nonce = self.Nonce
	for _, i := range []bus.Identity{self, victim, mixed, thief, {Name: "root", Nonce: self.Nonce}, {Name: "0", Nonce: self.Nonce}} {
		for _, r := range rights {
			p := fill(r.Pattern, i)
			list = append(list, p, concrete(p))
		}
		list = append(list, fill("salt.minion.<id>.>", i), fill("salt.minion.<id>.ctl", i), fill("salt.minion.<id>.ret.*", i),
			fill("<inbox>", i), fill("salt.user.<uid>.>", i), fill("salt.key.<key>.>", i), fill("salt.minion.<id>.job.x", i),
			fill("salt.minion.<id>.req.*", i), fill("salt.user.<uid>.req.*", i), fill("salt.client.<client>.req.>", i),
			fill("salt.remote.<login>.req.>", i), fill("salt.guest.<key>.req.>", i))
		for _, e := range append(slices.Clone(bustest.Endpoints), bus.MinionEndpoints...) {
			for _, pattern := range []string{"salt.minion.<id>.req.", "salt.user.<uid>.req.", "salt.client.<client>.req.", "salt.remote.<login>.req.", "salt.guest.<key>.req.", "salt.key.<key>.req."} {
				list = append(list, fill(pattern, i)+e.Op)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// fill replaces the placeholders of a pattern by an identity, whether or not it has the right.
func fill(pattern string, i bus.Identity) string {
	name := strings.TrimPrefix(strings.TrimSuffix(bus.JobSubject(salt.MinionID(i.Name)), ".job"), "salt.minion.")
	key := i.Key
	if key == "" {
		key = strings.Repeat("0", 64)
	}
	inbox := "_INBOX." + key + "." + i.Nonce
	if i.Role == bus.RoleUser {
		inbox = i.Inbox()
	}
	return strings.NewReplacer("<id>", name, "<client>", name, "<login>", name, "<uid>", name, "<key>", key, "<inbox>", inbox).Replace(pattern)
}

func concrete(pattern string) string {
	return strings.NewReplacer("*", "x", ">", "x").Replace(pattern)
}

// covers reports whether every subject of the second pattern also matches the first.
func covers(allowed, asked string) bool {
	a, s := strings.Split(allowed, "."), strings.Split(asked, ".")
	for i, token := range a {
		if i >= len(s) {
			return false
		}
		if token == ">" {
			return true
		}
		if s[i] == ">" || token != "*" && token != s[i] {
			return false
		}
	}
	return len(a) == len(s)
}

func allowedBy(rights bus.Rights, i bus.Identity, verb bus.Verb, subject string) bool {
	return slices.ContainsFunc(rights.Allowed(i, verb), func(p string) bool { return covers(p, subject) })
}

var quoted = regexp.MustCompile(`(?i)for (publish|subscription) to "([^"]*)"`)

// complaints returns what the server has refused since the last call, by verb and subject. It
// waits for the refusal of one last subject, so none is missing.
func complaints(t *testing.T, c *bustest.Client) map[string]bool {
	t.Helper()
	sentinel := "forbidden." + bus.NewNonce()
	if err := c.Publish(sentinel, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for {
		select {
		case err := <-c.Violations:
			m := quoted.FindStringSubmatch(err.Error())
			if m == nil {
				t.Fatalf("complaint of another kind: %v", err)
			}
			if strings.EqualFold(m[2], sentinel) {
				return got
			}
			got[strings.ToLower(m[1])+" "+m[2]] = true
		case <-time.After(time.Minute):
			t.Fatal("the server let a forbidden word pass")
		}
	}
}

func tryPublish(t *testing.T, all *nats.Conn, rights bus.Rights, c *bustest.Client, subjects []string) {
	t.Helper()
	heard, err := all.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Unsubscribe() //nolint:errcheck
	if err := all.Flush(); err != nil {
		t.Fatal(err)
	}
	mark := "from " + c.Self.Nonce
	for _, s := range subjects {
		if err := c.Publish(s, []byte(mark)); err != nil {
			t.Fatalf("publish %s: %v", s, err)
		}
	}
	refused := complaints(t, c)
	arrived := map[string]bool{}
	for _, m := range drain(t, all, heard) {
		if string(m.Data) == mark {
			arrived[m.Subject] = true
		}
	}
	for _, s := range subjects {
		if may := allowedBy(rights, c.Self, bus.Publish, s); may == refused["publish "+s] || may != arrived[s] {
			t.Errorf("%s publishes %s: allowed %v, refused %v, arrived %v", c.Self.Role, s, may, refused["publish "+s], arrived[s])
		}
	}
}

func trySubscribe(t *testing.T, all *nats.Conn, rights bus.Rights, c *bustest.Client, subjects []string, queue string) {
	t.Helper()
	got := make(chan *nats.Msg, 10_000)
	for _, s := range subjects {
		sub, err := c.ChanQueueSubscribe(s, queue, got)
		if err != nil {
			t.Fatalf("subscribe %s: %v", s, err)
		}
		defer sub.Unsubscribe() //nolint:errcheck // of a refused one
	}
	refused := complaints(t, c)
	for _, s := range subjects {
		if may := allowedBy(rights, c.Self, bus.Subscribe, s); may == refused["subscription "+s] {
			t.Errorf("%s subscribes to %s (queue %q): allowed %v, refused %v", c.Self.Role, s, queue, may, !may)
		}
	}
	speakEverywhere(t, all, subjects)
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	heard := map[string]bool{}
	for len(got) > 0 {
		heard[(<-got).Subject] = true
	}
	for s := range heard {
		if !allowedBy(rights, c.Self, bus.Subscribe, s) {
			t.Errorf("%s heard a message on %s (queue %q)", c.Self.Role, s, queue)
		}
	}
	if len(heard) == 0 {
		t.Errorf("%s heard nothing, not even its own", c.Self.Role)
	}
}

// speakEverywhere makes the daemon publish on every valid subject.
func speakEverywhere(t *testing.T, all *nats.Conn, subjects []string) {
	t.Helper()
	for _, s := range subjects {
		if strings.HasPrefix(s, "$") || strings.ContainsAny(s, "*>") {
			continue
		}
		if err := all.Publish(s, []byte("secret")); err != nil {
			t.Fatal(err)
		}
	}
	if err := all.Flush(); err != nil {
		t.Fatal(err)
	}
}

// drain returns what a subscription has received up to the end of a round trip.
func drain(t *testing.T, nc *nats.Conn, sub *nats.Subscription) []*nats.Msg {
	t.Helper()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	var list []*nats.Msg
	for {
		n, _, err := sub.Pending()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return list
		}
		m, err := sub.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
}

// TestCovers checks the function that the test of all roles and subjects relies on.
func TestCovers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allowed, asked string
		want           bool
	}{
		{">", "a.b", true}, {"a.>", "a", false}, {"a.>", "a.b.c", true}, {"a.>", "*.b", false}, {"a.*", "a.b", true}, {"a.*", "a.*", true},
		{"a.*", "a.>", false}, {"a.*", "a.b.c", false}, {"a.b", "a.b", true}, {"a.b", "a.*", false}, {"a.b", ">", false}, {"a.b.c", "a.b", false},
	} {
		if got := covers(c.allowed, c.asked); got != c.want {
			t.Errorf("covers(%s, %s) = %v", c.allowed, c.asked, got)
		}
	}
	uid := strconv.Itoa(os.Geteuid())
	if fmt.Sprint(bus.Table.Allowed(bus.Identity{Role: bus.RoleUser, Name: uid}, bus.Publish)) != "[salt.user."+uid+".ack.*.* salt.user."+uid+".credit]" {
		t.Error("the user's rules are not what this test believes")
	}
}
