package master_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/test/deadline"
)

// The attacks of a minion whose key is in the hands of somebody else, who speaks
// NATS without any of our code: each must fail, leave the others alone, and be seen.

// attacked is a master with web1, which may publish tests to everybody, db1, and
// evil, which may nothing.
type attacked struct {
	*world
	web1, db1, evil *upstream.Connection
	violations      chan string // what the server complained of to evil

	mu  sync.Mutex
	ran []*job.Envelope // on web1 and db1
}

func underAttack(t *testing.T) *attacked {
	w := start(t, "auto_accept: True\nlog_level: debug\npeer: {web1: ['test\\..*']}\npeer_run: {web1: ['jobs\\..*', test.arg]}\n")
	a := &attacked{world: w, violations: make(chan string, 1000)}
	note := func(e *job.Envelope) *job.Report {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ran = append(a.ran, e)
		return pong(e)
	}
	a.web1, a.db1, a.evil = a.minion("web1", note), a.minion("db1", note), a.minion("evil", pong)
	a.evil.NC.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case a.violations <- err.Error():
		default:
		}
	})
	return a
}

const refusedWord = "refused: "

// send publishes the pieces of a request as evil does and returns the first message of the
// answer: with refusedWord before it if that is an error.
func (a *attacked) send(subject string, pieces ...string) string {
	a.t.Helper()
	reply := a.evil.NC.NewInbox()
	sub, err := a.evil.NC.SubscribeSync(reply)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for i, p := range pieces {
		m := &nats.Msg{Subject: subject, Reply: reply, Data: []byte(p)}
		if i < len(pieces)-1 {
			m.Header = nats.Header{"Salt-Part": {"more"}}
		}
		if err := a.evil.NC.PublishMsg(m); err != nil {
			a.t.Fatal(err)
		}
	}
	m, err := sub.NextMsg(30 * time.Second)
	if err != nil {
		a.t.Fatalf("no answer on %s: %v", subject, err)
	}
	if m.Header.Get("Nats-Service-Error") != "" {
		return refusedWord + string(m.Data)
	}
	return string(m.Data)
}

// jobs are how many jobs web1 and db1 have got.
func (a *attacked) jobs() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ran)
}

// stands fails when the master does not serve the others any more.
func (a *attacked) stands() {
	a.t.Helper()
	if _, got, err := publish(a.t, a.web1.Conn, publication("db1", "test.ping")); err != nil || got["db1"].State != job.Done {
		a.t.Errorf("web1 is not served any more: %v, %v", got, err)
	}
}

const pingAll = `{"tgt":"*","tgt_type":"glob","commands":[{"fun":"test.ping","arg":[],"kwarg":{}}],"timeout":1%s}`

func TestForgedRequests(t *testing.T) {
	a := underAttack(t)
	plain := fmt.Sprintf(pingAll, "")
	for name, c := range map[string]struct{ subject, body, want string }{
		"as itself":           {"salt.minion.evil.req.publish", plain, `"denied"`},
		"an id":               {"salt.minion.evil.req.publish", fmt.Sprintf(pingAll, `,"id":"web1","from":"web1","user":"root","minion":"web1"`), `"denied"`},
		"a signed job's user": {"salt.minion.evil.req.publish", fmt.Sprintf(pingAll, `,"User":"root","From":"web1","JID":"20200101000000000000"`), `"denied"`},
		"in batches":          {"salt.minion.evil.req.publish", fmt.Sprintf(pingAll, `,"batch":{"size":"1"}`), `"usage"`},
		"for later":           {"salt.minion.evil.req.publish", fmt.Sprintf(pingAll, `,"queue":3600`), `"usage"`},
		"returner's settings": {"salt.minion.evil.req.publish", fmt.Sprintf(pingAll, `,"ret":"file","ret_kwargs":{"path":"/etc/cron.d/x"}`), `"usage"`},
		"a runner":            {"salt.minion.evil.req.run", `{"command":{"fun":"test.arg"},"id":"web1"}`, `"denied"`},
		"a wheel function":    {"salt.minion.evil.req.run", `{"command":{"fun":"key.accept"},"wheel":true}`, `"denied"`},
		"the mine of another": {"salt.minion.evil.req.mine_get", `{"tgt":"x:*","tgt_type":"pillar","names":["a"],"id":"web1"}`, `"denied"`},
	} {
		if got := a.send(c.subject, c.body); !strings.HasPrefix(got, refusedWord) || !strings.Contains(got, c.want) {
			t.Errorf("%s: %.200s, want %s", name, got, c.want)
		}
	}
	if n := a.jobs(); n != 0 {
		t.Errorf("%d jobs were run", n)
	}
	a.stands()
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.ran[0]; e.From != "web1" || e.User != "minion:web1" {
		t.Errorf("the job of web1 is from %q as %q", e.From, e.User)
	}
	w := a.said()
	for _, want := range []string{`user=minion:evil fun=test.ping`, `user=minion:evil fun="@runner test.arg"`, `msg="request refused" from=minion:evil`} {
		if !strings.Contains(w, want) {
			t.Errorf("the log does not have %s", want)
		}
	}
}

// What is not evil's own subject does not leave the server: no answer, no effect.
func TestSubjectsOfOthers(t *testing.T) {
	a := underAttack(t)
	nc := a.evil.NC
	theirs := a.web1.NC.NewInbox()
	own := nc.NewInbox()
	heard, err := nc.SubscribeSync(own)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(fmt.Sprintf(pingAll, ""))
	for _, subject := range []string{
		"salt.minion.web1.req.publish", "salt.minion.web1.fire", "salt.minion.web1.ret.20200101000000000000", "salt.minion.web1.credit", "salt.minion.web1.ack.1.5",
		"salt.minion.evil.req.listen", "salt.minion.evil.req.place", "salt.minion.evil.req.login", "salt.minion.evil.req.nosuch", // of users, and of nobody
		"salt.minion.web1.job", "salt.minion.web1.ctl", "salt.minion.evil.job", "salt.user.0.req.publish", "salt.user.0.req.run", "salt.event.salt.job",
		"$JS.API.STREAM.NAMES", "$KV.mine.web1", "$SYS.REQ.SERVER.PING", theirs, "salt.minion.*.req.publish", "salt.minion.>",
	} {
		if err := nc.PublishRequest(subject, own, body); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		expectViolation(t, a, "Publish", subject)
	}
	for _, subject := range []string{"salt.minion.web1.job", "salt.minion.*.job", "salt.>", ">", "_INBOX.>", theirs, "salt.minion.web1.ret.*", "$JS.API.>", "$KV.mine.>"} {
		for _, queue := range []string{"", "workers"} {
			sub, err := nc.QueueSubscribeSync(subject, queue)
			if queue == "" {
				sub, err = nc.SubscribeSync(subject)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			expectViolation(t, a, "Subscription", subject)
			_ = sub.Unsubscribe()
		}
	}
	if n, _, err := heard.Pending(); n > 0 && err == nil {
		m, _ := heard.NextMsg(time.Second)
		t.Errorf("an answer came: %.100s", m.Data)
	}
	if n := a.jobs(); n != 0 {
		t.Errorf("%d jobs were run", n)
	}
	a.stands()
	if !strings.Contains(a.said(), "Publish Violation") || !strings.Contains(a.said(), "Subscription Violation") {
		t.Error("the log does not tell of violations")
	}
}

func expectViolation(t *testing.T, a *attacked, what, subject string) {
	t.Helper()
	select {
	case err := <-a.violations:
		if !strings.Contains(strings.ToLower(err), "permissions violation for "+strings.ToLower(what)) {
			t.Errorf("%s on %s: %s", what, subject, err)
		}
	case <-time.After(time.Minute):
		t.Errorf("%s on %s is permitted", what, subject)
	}
}

// A request that evil has copied is evil's when evil sends it; an answer cannot be
// directed to somebody else, nor read by anybody else; and a job's id opens nothing.
func TestReplayedRequestsAndResultsOfOthers(t *testing.T) {
	a := underAttack(t)
	begin, got, err := publish(t, a.web1.Conn, publication("db1", "test.echo"))
	if err != nil || got["db1"].State != job.Done {
		t.Fatalf("web1 publishes: %v, %v", got, err)
	}
	before := a.jobs()
	if got := a.send("salt.minion.evil.req.publish", fmt.Sprintf(pingAll, "")); !strings.Contains(got, `"denied"`) {
		t.Errorf("the request of web1, sent by evil: %s", got)
	}
	nc := a.evil.NC
	for _, reply := range []string{a.web1.NC.NewInbox(), "salt.minion.db1.job", "salt.user.0.req.run", "_INBOX.*.>", "$JS.API.STREAM.DELETE.events", ""} {
		if err := nc.PublishMsg(&nats.Msg{Subject: "salt.minion.evil.req.publish", Reply: reply, Data: []byte(fmt.Sprintf(pingAll, ""))}); err != nil && reply != "_INBOX.*.>" {
			t.Fatal(err)
		}
	}
	jid := string(begin.JID)
	for name, c := range map[string]struct{ subject, body, want string }{
		"its return by evil":   {"salt.minion.evil.ret." + jid, `{"state":"done","return":"forged"}`, `"denied"`},
		"its return, by a run": {"salt.minion.evil.req.return", `{"jid":"` + jid + `","command":{"fun":"test.ping"},"return":"forged"}`, `"denied"`},
		"its return as event":  {"salt.minion.evil.fire", `{"events":[{"tag":"salt/job/` + jid + `/ret/db1","data":{}}]}`, `"denied"`},
		"its result, by jid":   {"salt.minion.evil.req.run", `{"command":{"fun":"jobs.lookup_jid","arg":["` + jid + `"]}}`, `"denied"`},
	} {
		if got := a.send(c.subject, c.body); !strings.Contains(got, c.want) {
			t.Errorf("%s: %.200s, want %s", name, got, c.want)
		}
	}
	if n := a.jobs(); n != before {
		t.Errorf("%d jobs were run by what evil sent", n-before)
	}
	a.stands()
	for _, e := range listenSince(t, a.user(), "") {
		if strings.Contains(string(e.Data), "forged") {
			t.Errorf("stored: %s %s", e.Tag, e.Data)
		}
	}
	if !strings.Contains(a.said(), "its answer would go elsewhere") {
		t.Error("the log does not tell of answers that would go elsewhere")
	}
}

func TestHugeAndMalformedBodies(t *testing.T) {
	a := underAttack(t)
	deep := strings.Repeat(`[`, 100_000) + strings.Repeat(`]`, 100_000)
	many := strings.TrimSuffix(strings.Repeat(`{"fun":"test.ping"},`, 10_000), ",")
	for name, c := range map[string]struct{ op, body, want string }{
		"nothing":                {"publish", "", `"usage"`},
		"nothing in it":          {"publish", "{}", `"usage"`},
		"an unknown kind":        {"publish", "i", `"usage"`},
		"no JSON":                {"publish", "\x00\xff", `"usage"`},
		"cut off":                {"publish", `{"tgt":"*`, `"usage"`},
		"a list":                 {"publish", `i[]`, `"usage"`},
		"wrong types":            {"publish", `{"tgt":5,"commands":"test.ping"}`, `"usage"`},
		"nested deeply":          {"publish", `{"tgt":"*","tgt_type":"glob","commands":[{"fun":"test.echo","arg":[` + deep + `]}]}`, `"usage"`},
		"no function":            {"publish", `{"tgt":"*","tgt_type":"glob","commands":[]}`, `"usage"`},
		"a function with a path": {"publish", `{"tgt":"*","tgt_type":"glob","commands":[{"fun":"../../etc"}]}`, `"usage"`},
		"many functions":         {"publish", `{"tgt":"*","tgt_type":"glob","commands":[` + many + `]}`, `"denied"`},
		"an expensive target":    {"publish", `{"tgt":"` + strings.Repeat("(a*)*", 1000) + `b","tgt_type":"pcre","commands":[{"fun":"test.ping"}]}`, `"denied"`},
		"a runner without name":  {"run", `{"command":{}}`, `"usage"`},
		"a mine of junk":         {"mine", `{"put":[1]}`, `"usage"`},
		"a mine nested deeply":   {"mine", `{"put":{"a":{"data":` + deep + `}}}`, `"usage"`},
		"messages of junk":       {"messages", `{"messages":[{"op":"ret.x","body":{}}]}`, ``},
		"letters of junk":        {"letters", `{"letters":[{"op":"ret.x","body":{}}]}`, ``},
		"grains of junk":         {"grains", `{"grains":[]}`, `"usage"`},
	} {
		if got := a.send("salt.minion.evil.req."+c.op, c.body); !strings.Contains(got, c.want) {
			t.Errorf("%s: %.200s, want %s", name, got, c.want)
		}
	}
	// Pieces without end are dropped at a limit, and their memory with them.
	piece := "p" + strings.Repeat("x", 900<<10)
	pieces := make([]string, 80) // more than 64 MiB
	for i := range pieces {
		pieces[i] = piece
	}
	if got := a.send("salt.minion.evil.req.publish", append(pieces, "i}")...); !strings.Contains(got, "too large") {
		t.Errorf("a body of %d pieces: %.200s", len(pieces), got)
	}
	a.stands()
	if !strings.Contains(a.said(), `msg="request refused" from=minion:evil`) {
		t.Error("the log does not tell of it")
	}
	if got := a.send("salt.minion.evil.req.publish", append(pieces[:10], "i}")...); !strings.Contains(got, "too large: the limit is 4194304 bytes") {
		t.Errorf("a body of 10 pieces: %.200s", got)
	}
	// A message beyond the limit of the bus ends its connection, and no other.
	if err := a.evil.NC.Publish("salt.minion.evil.req.publish", make([]byte, 4<<20)); err == nil {
		_ = a.evil.NC.FlushTimeout(30 * time.Second)
		t.Log("the client library let it pass")
	}
	a.stands()
}

// 10,000 requests a second of one minion: they are answered or told to come later,
// and the others are served meanwhile.
func TestFloodOfOneMinion(t *testing.T) {
	a := underAttack(t)
	const count, perSecond = 10_000, 10_000
	var sent atomic.Int64
	over := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(over)
		body := []byte(fmt.Sprintf(pingAll, ""))
		inbox := a.evil.NC.NewInbox()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range count / (perSecond / 100) {
			for range perSecond / 100 {
				if a.evil.NC.PublishRequest("salt.minion.evil.req.publish", inbox+strconv.FormatInt(sent.Add(1), 10), body) != nil {
					return // it was cut
				}
			}
			<-tick.C
		}
	}()
	var slowest time.Duration
	served := 0
	for flooding := true; flooding; served++ {
		at := time.Now()
		a.stands()
		slowest = max(slowest, time.Since(at))
		select {
		case <-over:
			flooding = false
		default:
		}
	}
	t.Logf("%d requests, %.0f a second; %d publishes of web1 meanwhile, the slowest took %s", sent.Load(), float64(sent.Load())/time.Since(began).Seconds(), served, slowest)
	a.stands()
	if _, got, err := publish(t, a.user(), ping("db1", "glob")); err != nil || got["db1"].State != job.Done {
		t.Errorf("root is not served any more: %v, %v", got, err)
	}
	if n := a.jobs(); n > served+2 {
		t.Errorf("%d jobs were run, want those of web1 and root", n)
	}
}

// Targets that take long: of one who may nothing they are not even looked at, and of one
// who may they wait behind each other.
func TestDearTargets(t *testing.T) {
	a := underAttack(t)
	a.minion(salt.MinionID(strings.Repeat("a", 60)+"b"), pong) // what the expression takes long with
	const dear = `{"tgt":"(?!db)(a+)+c","tgt_type":"pcre","commands":[{"fun":"test.ping","arg":[],"kwarg":{}}],"timeout":1}`
	ask := func(nc *nats.Conn, from string, count int) <-chan *nats.Msg {
		inbox := nc.NewInbox()
		inbox = inbox[:strings.LastIndexByte(inbox, '.')+1]
		answers := make(chan *nats.Msg, 10*count)
		sub, err := nc.ChanSubscribe(inbox+"*", answers)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sub.Unsubscribe() })
		for n := range count {
			if err := nc.PublishRequest("salt.minion."+from+".req.publish", inbox+"dear"+strconv.Itoa(n), []byte(dear)); err != nil {
				t.Fatal(err)
			}
		}
		return answers
	}
	began, answers := time.Now(), ask(a.evil.NC, "evil", 100)
	for range 100 {
		select {
		case m := <-answers:
			if !strings.Contains(string(m.Data), `"denied"`) {
				t.Fatalf("evil was told %.200s", m.Data)
			}
		case <-time.After(time.Minute):
			t.Fatalf("who may nothing has it evaluate for long: %d are left", len(answers))
		}
	}
	t.Logf("100 that are refused took %s", time.Since(began))

	asked := time.Now()
	answers = ask(a.web1.NC, "web1", 40) // a quarter of a second each
	var slowest time.Duration
	for range 10 {
		at := time.Now()
		if _, got, err := publish(t, a.user(), ping("db1", "glob")); err != nil || got["db1"].State != job.Done {
			t.Errorf("root is not served: %v, %v", got, err)
		}
		slowest = max(slowest, time.Since(at))
	}
	if n, most := len(answers), 3+int(time.Since(asked)/(100*time.Millisecond)); n > most {
		t.Errorf("%d targets of web1 were evaluated side by side: %s", n, (deadline.Receive(t, answers, "answers")).Data)
	}
	t.Logf("meanwhile the slowest of ten pings took %s", slowest)
}

// Who has no accepted key asks one question of a connection, with a small body: more is
// refused, and the question that stands is answered all the same.
func TestAKeyWithoutRightsAsksOnce(t *testing.T) {
	w := start(t, "")
	k := key(t)
	l, err := w.offerKey("web1", k, nil)
	if err != nil || l.State() != protocol.KeyPending {
		t.Fatalf("first contact: %v", err)
	}
	subject := "salt.key." + bus.KeyToken(k.Public().Key()) + ".req.ask"
	ask := func(body string) string {
		t.Helper()
		reply := l.NC.NewInbox()
		sub, err := l.NC.SubscribeSync(reply)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		if err := l.NC.PublishRequest(subject, reply, []byte(body)); err != nil {
			t.Fatal(err)
		}
		m, err := sub.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return string(m.Data)
	}
	for range 3 {
		if got := ask(`{}`); !strings.Contains(got, `"busy"`) {
			t.Errorf("one more question: %.200s, want it refused", got)
		}
	}
	if got := ask(`{"version":"` + strings.Repeat("x", 2000) + `"}`); !strings.Contains(got, `"usage"`) {
		t.Errorf("a large question: %.200s, want it refused", got)
	}
	store, err := pki.OpenExistingStore(w.cfg.PKIDir)
	if err != nil {
		t.Fatal(err)
	}
	accept(t, store, "web1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Wait(ctx); err != nil {
		t.Errorf("the question that stands: %v", err)
	}
}

// What one minion says of itself fills neither the memory nor the log.
func TestFloodOfGrainsAndHellos(t *testing.T) {
	a := underAttack(t)
	bomb := `{"grains":{"x":[` + strings.TrimSuffix(strings.Repeat(`{"":0},`, 30_000), ",") + `]}}`
	large := `{"grains":{"x":"` + strings.Repeat("x", 300<<10) + `"}}`
	for _, body := range []string{bomb, large} {
		for _, op := range []string{"hello", "grains"} {
			if got := a.pieces("salt.minion.evil.req."+op, body); !strings.Contains(got, `"usage"`) || !strings.Contains(got, "the limits are 262144 and 10000") {
				t.Errorf("%s: %.200s", op, got)
			}
		}
	}
	fits := `{"grains":{"id":"evil","x":[` + strings.TrimSuffix(strings.Repeat(`{"":0},`, 4000), ",") + `]}}`
	if got := a.pieces("salt.minion.evil.req.grains", fits); strings.HasPrefix(got, refusedWord) {
		t.Errorf("grains within the limits: %.200s", got)
	}
	if _, got, err := publish(t, a.user(), ping("id:evil", "grain")); err != nil || len(got) != 1 {
		t.Errorf("they are not found: %v, %v", got, err)
	}
	for range 200 {
		if got := a.send("salt.minion.evil.req.hello", `{"grains":{"id":"evil"},"version":"`+strings.Repeat("v", 1000)+`"}`); strings.HasPrefix(got, refusedWord) {
			t.Fatalf("hello: %.200s", got)
		}
	}
	lines := 0
	for line := range strings.SplitSeq(a.said(), "\n") {
		if strings.Contains(line, "minion=evil") && !strings.Contains(line, "level=DEBUG") {
			lines++
			if len(line) > 1000 {
				t.Errorf("a line of %d bytes", len(line))
			}
		}
	}
	if lines > 20 {
		t.Errorf("%d lines about evil in the log", lines)
	}
	a.stands()
}

// pieces sends a request of any length, as a client does, and returns the first word of
// the answer.
func (a *attacked) pieces(subject, body string) string {
	const most = 500 << 10
	var list []string
	for len(body) > most {
		list = append(list, body[:most])
		body = body[most:]
	}
	return a.send(subject, append(list, body)...)
}
