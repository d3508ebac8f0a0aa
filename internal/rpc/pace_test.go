package rpc

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
)

func TestPace(t *testing.T) {
	const perSecond, burst = 100, 200
	p, now := paces{perSecond: perSecond}, time.Unix(1_700_000_000, 0)
	cuts := 0
	count := func(principal string, tries int) (taken int) {
		for range tries {
			_, ok, cut := p.take(principal, 1, now)
			if ok {
				taken++
			}
			if cut {
				cuts++
			}
		}
		return taken
	}
	if n := count("minion:a", burst+250); n != burst || cuts != 2 {
		t.Errorf("at once %d were taken and it was cut %d times, want %d and 2", n, cuts, burst)
	}
	if n := count("minion:b", 10); n != 10 {
		t.Errorf("of another %d were taken, want 10", n)
	}
	now = now.Add(time.Second)
	if n := count("minion:a", perSecond+60); n != perSecond || cuts != 3 {
		t.Errorf("a second later %d were taken and it was cut %d times, want %d and 3: it did not come to rest", n, cuts, perSecond)
	}
	now = now.Add(time.Hour)
	if n := count("minion:a", burst+90); n != burst || cuts != 3 {
		t.Errorf("an hour later %d were taken and it was cut %d times, want %d and 3", n, cuts, burst)
	}
	for i := range 2 * maxPaced {
		p.take(strconv.Itoa(i), 1, now)
	}
	if len(p.of) > maxPaced {
		t.Errorf("%d principals are remembered, the limit is %d", len(p.of), maxPaced)
	}
}

// TestPaceIsKeptBeforeAnythingIsRefused: long before a sender is refused, the server stops
// reading from it for as long as it is ahead of its rate.
func TestPaceIsKeptBeforeAnythingIsRefused(t *testing.T) {
	p, now := paces{perSecond: 1000}, time.Unix(1_700_000_000, 0)
	var pushed time.Duration
	for n := range 3000 {
		ahead, taken, _ := p.take("minion:a", 1, now)
		switch {
		case !taken:
			t.Fatalf("the request %d is refused: it was read though it was ahead", n)
		case n < 50 && ahead > 0:
			t.Fatalf("after %d requests it is not heard for %s", n, ahead)
		}
		now = now.Add(ahead) // as a broker that does not read until then
		pushed += ahead
	}
	if least := 2900 * time.Millisecond; pushed < least {
		t.Errorf("3000 requests were read within %s, want at least %s", pushed, least)
	}
}

// TestEveryMessageIsInThePace: not only requests slow their sender down, but also floods of
// messages that acknowledge parts of answers, and of requests whose answer would go to another
// connection. The connection of a key that is not accepted ends after the latter.
func TestEveryMessageIsInThePace(t *testing.T) {
	const flood = 10 * defaultPace
	for _, c := range []struct {
		name, subject, reply, body string
	}{
		{"window of a minion", "salt.minion.evil.credit", "", "_INBOX.x.y.1 5"},
		{"window of a user", "salt.user.1000.credit", "", "junk"},
		{"word of a minion", "salt.minion.evil.ack.1.5", "", ""},
		{"word of a client", "salt.client.broken.ack.1.5", "", ""},
		{"stray word of a client", "salt.client.broken.ack.zz.5", "", ""},
		{"foreign reply of a minion", "salt.minion.evil.req.pillar", "salt.minion.web1.job", "{}"},
		{"foreign reply of a client", "salt.client.broken.req.fire", "salt.event.x", "{}"},
		{"foreign reply of a key", "salt.key.0a.req.ask", "_INBOX.another.key.1", "{}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			nobody := func(string) (bus.Identity, bool) { return bus.Identity{}, false }
			s := NewServer(nil, nobody, bus.MasterEndpoints, slog.New(slog.DiscardHandler))
			pushed, cut := 0, 0
			s.Slow = func(bus.Identity, time.Duration) { pushed++ }
			s.CutKey = func(string) { cut++ }
			handle := s.request
			switch {
			case strings.HasSuffix(c.subject, ".credit"):
				handle = s.widenFramed
			case strings.Contains(c.subject, ".ack."):
				handle = s.confirmed
			}
			for range flood {
				handle(&nats.Msg{Subject: c.subject, Reply: c.reply, Data: []byte(c.body)})
			}
			if pushed < flood/2 {
				t.Errorf("of %d in a moment %d pushed their sender back", flood, pushed)
			}
			if unaccepted := strings.HasPrefix(c.subject, "salt.key."); unaccepted != (cut > 0) {
				t.Errorf("its connections were ended %d times", cut)
			}
		})
	}
}

// TestAnUnacceptedKeyIsCut: nothing slows it down, so its connection ends after as many
// requests as are permitted in three seconds.
func TestAnUnacceptedKeyIsCut(t *testing.T) {
	const perSecond = defaultPace / unacceptedWeight
	synctest.Test(t, func(t *testing.T) { // no time passes in it
		s := NewServer(nil, func(string) (bus.Identity, bool) { return bus.Identity{}, false }, bus.MasterEndpoints, slog.New(slog.DiscardHandler))
		ended := ""
		s.Cut = func(inbox string) { ended = inbox }
		from, asked := bus.Identity{Role: bus.RoleUnaccepted, Name: "0a", Key: "0a"}, 0
		for ; ended == "" && asked < 10*perSecond; asked++ {
			if err := s.tooFast(from, s.endpoints.Find(from.Role, "ask"), incoming{reply: "_INBOX.0a.nonce.1", data: []byte("{}")}); (err != nil) != (asked >= 2*perSecond) {
				t.Fatalf("request %d: %v", asked, err)
			}
		}
		if ended != "_INBOX.0a.nonce" || asked > 3*perSecond {
			t.Errorf("after %d requests the connection %q was ended", asked, ended)
		}
	})
}

// TestALongQuestionOfAnUnacceptedKey: the first one is read and refused for its length; with
// the second one the connection ends. One within the limit counts as one request.
func TestALongQuestionOfAnUnacceptedKey(t *testing.T) {
	for _, role := range []bus.Role{bus.RoleUnaccepted, bus.RoleGuest} {
		synctest.Test(t, func(t *testing.T) { // no time passes in it
			s := NewServer(nil, func(string) (bus.Identity, bool) { return bus.Identity{}, false }, bus.MasterEndpoints, slog.New(slog.DiscardHandler))
			ended := ""
			s.Cut = func(inbox string) { ended = inbox }
			from := bus.Identity{Role: role, Name: "0a", Key: "0a"}
			ask := func(size int) error {
				return s.tooFast(from, s.endpoints.Find(bus.RoleUnaccepted, "ask"), incoming{reply: "_INBOX.0a.nonce.1", data: make([]byte, size)})
			}
			if err := ask(1 << 20); err != nil || ended != "" {
				t.Errorf("%s: the first long one: %v, ended %q", role, err, ended)
			}
			if err := ask(bus.KeyBody); err != nil || ended != "" {
				t.Errorf("%s: a usual one after it: %v, ended %q", role, err, ended)
			}
			if err := ask(63 << 10); err == nil || ended != "_INBOX.0a.nonce" {
				t.Errorf("%s: the second long one: %v, ended %q", role, err, ended)
			}
		})
	}
}

// TestLongRequestsCountForMore: a sender of long requests is slowed down after few of them,
// also if each is a job.
func TestLongRequestsCountForMore(t *testing.T) {
	before := func(op string, size int) (n int) {
		synctest.Test(t, func(t *testing.T) { // no time passes in it
			s := NewServer(nil, func(string) (bus.Identity, bool) { return bus.Identity{}, false }, bus.MasterEndpoints, slog.New(slog.DiscardHandler))
			pushed := false
			s.Slow = func(bus.Identity, time.Duration) { pushed = true }
			from, data := bus.Identity{Role: bus.RoleUser, Name: "1000"}, make([]byte, size)
			for n = 0; !pushed; n++ {
				if err := s.tooFast(from, s.endpoints.Find(from.Role, op), incoming{reply: "_INBOX.x.1", data: data}); err != nil {
					t.Fatal(err)
				}
			}
		})
		return n
	}
	for _, op := range []string{"publish", "fire"} {
		short, middle, long := before(op, 100), before(op, 60<<10), before(op, 500<<10)
		if middle > short/3 || long > short/6 {
			t.Errorf("%s: pushed back after %d short requests, %d of 60 KiB and %d of 500 KiB", op, short, middle, long)
		}
	}
}

// TestEachLoginHasItsOwnPace: a program such as salt-api has connections for many people. A flood of
// one of them, of requests or of confirmations, slows that one down and none of the others.
func TestEachLoginHasItsOwnPace(t *testing.T) {
	user := func(nonce string) bus.Identity { return bus.Identity{Role: bus.RoleUser, Name: "1000", Nonce: nonce} }
	owners := map[string]bus.Identity{}
	for _, nonce := range []string{"fred", "eve", "none"} {
		owners[user(nonce).Inbox()] = user(nonce)
	}
	synctest.Test(t, func(t *testing.T) { // no time passes in it
		s := NewServer(nil, func(inbox string) (bus.Identity, bool) { i, ok := owners[inbox]; return i, ok }, bus.MasterEndpoints, slog.New(slog.DiscardHandler))
		s.Quota = func(i bus.Identity) string {
			if i.Nonce == "fred" || i.Nonce == "eve" {
				return "user:1000 pam:" + i.Nonce
			}
			return ""
		}
		slowed := map[string]int{}
		s.SlowOne = func(inbox string, _ time.Duration) { slowed[inbox]++ }
		s.Slow = func(i bus.Identity, _ time.Duration) { slowed[i.String()]++ }
		ask := func(nonce string) {
			if err := s.tooFast(user(nonce), s.endpoints.Find(bus.RoleUser, "fire"), incoming{reply: user(nonce).Inbox() + ".1", data: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		s.byNumber[7] = &answerer{from: user("fred"), acked: make(chan struct{}, 1)}
		const flood = 10 * defaultPace
		for range flood {
			ask("fred")
			s.confirmed(&nats.Msg{Subject: "salt.user.1000.ack.7.5"})
			s.widenFramed(&nats.Msg{Subject: "salt.user.1000.credit", Data: []byte(user("fred").Inbox() + ".1 5")})
		}
		for range 10 {
			ask("eve")
			ask("none")
		}
		if n := slowed[user("fred").Inbox()]; n < 2*flood || len(slowed) != 1 {
			t.Errorf("after a flood of fred alone: %v", slowed)
		}
		for range flood {
			ask("none")
		}
		if len(slowed) != 2 || slowed["user:1000"] < flood/2 {
			t.Errorf("after a flood without a login: %v", slowed)
		}
	})
}
