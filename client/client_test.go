package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/pki"
)

func connect(t *testing.T, address string, opts ...client.Option) *client.Conn {
	t.Helper()
	c, err := client.Connect(t.Context(), address, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func returns(t *testing.T, c *client.Conn, target client.Target, cmd client.Command, o ...client.RunOptions) []client.Return {
	t.Helper()
	job, err := c.Run(t.Context(), target, cmd, o...)
	if err != nil {
		t.Fatal(err)
	}
	var list []client.Return
	for r, err := range job.Returns(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

func TestRun(t *testing.T) {
	c := connect(t, socket)
	got := returns(t, c, client.Glob("*"), client.Call("test.echo", map[string]any{"list": []int{1, 2}, "text": "1"}))
	if len(got) != 1 || !got[0].OK() || fmt.Sprint(got[0].Value) != "map[list:[1 2] text:1]" || got[0].Minion != "web1" {
		t.Errorf("test.echo: %+v", got)
	}
	got = returns(t, c, client.Target{Expr: "web1,ghost", Type: "list"}, client.Call("test.exception", "on purpose"))
	if len(got) != 2 {
		t.Fatalf("a minion that fails and one that is not there: %+v", got)
	}
	for _, r := range got {
		if r.OK() || r.Minion == "web1" && (r.Status != client.Failed || r.Retcode == 0) || r.Minion == "ghost" && r.Status != client.NotConnected {
			t.Errorf("%+v", r)
		}
	}
}

func TestPublishAndFollow(t *testing.T) {
	c := connect(t, socket)
	jid, err := c.Publish(t.Context(), client.Glob("web1"), client.Call("test.ping"))
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.Follow(t.Context(), jid)
	if err != nil || job.ID != jid {
		t.Fatalf("%+v, %v", job, err)
	}
	for r, err := range job.Returns(t.Context()) {
		if err != nil || r.Value != true {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// Each failure is recognised by errors.Is, and every call ends with its context.
func TestErrors(t *testing.T) {
	c := connect(t, socket)
	run := func(target client.Target, cmd client.Command) error {
		j, err := c.Run(t.Context(), target, cmd)
		if err == nil {
			j.Close()
		}
		return err
	}
	runner := func(cmd client.Command) error { _, err := c.Runner(t.Context(), cmd); return err }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, late := c.Runner(ended, client.Call("test.arg"))
	_, lateConnect := client.Connect(ended, socket)
	_, nobody := client.Connect(t.Context(), filepath.Join(t.TempDir(), "none.sock"))
	_, noSuch := c.Follow(t.Context(), "20200101000000000000")
	for _, test := range []struct {
		name      string
		err, want error
	}{
		{"nobody is meant", run(client.Glob("ghost*"), client.Call("test.ping")), client.ErrNoMatch},
		{"no function", run(client.Glob("*"), client.Call("../x")), client.ErrUsage},
		{"no value", run(client.Glob("*"), client.Call("test.echo", make(chan int))), client.ErrUsage},
		{"a target that is none", run(client.Target{Expr: "( and", Type: "compound"}, client.Call("test.ping")), client.ErrUsage},
		{"a runner that is none", runner(client.Call("no.such")), client.ErrFailed},
		{"an ended context", late, context.Canceled},
		{"an ended context, connecting", lateConnect, context.Canceled},
		{"no daemon", nobody, client.ErrNobody},
		{"no such job", noSuch, client.ErrNotFound},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, test.err, test.want)
		}
	}
	c.Close()
	if err := runner(client.Call("test.arg")); !errors.Is(err, client.ErrLost) {
		t.Errorf("over a closed connection: %v", err)
	}
}

// A login has only its own rights, not those of root, who made the connection.
func TestLogin(t *testing.T) {
	c := connect(t, socket)
	if _, err := c.Login(t.Context(), client.Login{Backend: "sharedsecret", User: "ada", Password: "wr0ngword"}); !errors.Is(err, client.ErrDenied) || strings.Contains(err.Error()+client.Hint(err), "wr0ngword") {
		t.Errorf("a wrong password: %v", err)
	}
	s, err := c.Login(t.Context(), client.Login{Backend: "sharedsecret", User: "ada", Password: "secret word", MakeToken: true})
	if err != nil || s.User != "ada" || s.Token == "" || time.Until(s.Expires) <= 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	if got := returns(t, c, client.Glob("web1"), client.Call("test.ping")); len(got) != 1 || got[0].Value != true {
		t.Errorf("%+v", got)
	}
	if _, err := c.Run(t.Context(), client.Glob("web1"), client.Call("cmd.run", "id")); !errors.Is(err, client.ErrDenied) || client.Hint(err) == "" {
		t.Errorf("not granted: %v", err)
	}
	if _, err := c.Keys(t.Context()); !errors.Is(err, client.ErrDenied) {
		t.Errorf("keys: %v", err)
	}
	if _, err := connect(t, socket).Login(t.Context(), client.Login{Token: s.Token}); err != nil {
		t.Errorf("by the token: %v", err)
	}
	if err := c.RevokeToken(t.Context(), s.Token); err != nil {
		t.Errorf("one's own token is revoked: %v", err)
	}
	if _, err := connect(t, socket).Login(t.Context(), client.Login{Token: s.Token}); !errors.Is(err, client.ErrDenied) || strings.Contains(err.Error()+client.Hint(err), s.Token) {
		t.Errorf("by the token that was revoked: %v", err)
	}
	if c.IsClosed() {
		t.Error("the connection has ended")
	}
	if c.Close(); !c.IsClosed() {
		t.Error("the connection stands")
	}
}

func TestRunnersAndKeys(t *testing.T) {
	c := connect(t, socket)
	v, err := c.Runner(t.Context(), client.Call("manage.up"))
	if err != nil || fmt.Sprint(v) != "[web1]" {
		t.Errorf("manage.up: %v, %v", v, err)
	}
	keys, err := c.Keys(t.Context())
	if err != nil || fmt.Sprint(keys) != "{[web1] [] [] []}" {
		t.Errorf("keys: %v, %v", keys, err)
	}
	waiting, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/salt/pki/master/minions_pre/db1"), waiting.Public().PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	if ids, err := c.AcceptKey(t.Context(), "db1"); err != nil || fmt.Sprint(ids) != "[db1]" {
		t.Errorf("accepted %v, %v", ids, err)
	}
	if err := c.DeleteKey(t.Context(), "db1"); err != nil {
		t.Error(err)
	}
	if keys, err := c.Keys(t.Context()); err != nil || fmt.Sprint(keys) != "{[web1] [] [] []}" {
		t.Errorf("keys after that: %v, %v", keys, err)
	}
}

// fired returns events with the numbers from 0 to n.
func fired(tag string, n int, pad string) []client.Event {
	var list []client.Event
	for i := range n {
		list = append(list, client.Event{Tag: tag, Data: json.RawMessage(fmt.Sprintf(`{"n":%d,"pad":%q}`, i, pad))})
	}
	return list
}

func number(t *testing.T, e client.Event) int {
	t.Helper()
	var data struct{ N int }
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatal(err)
	}
	return data.N
}

func TestListen(t *testing.T) {
	c := connect(t, socket)
	last, err := c.Fire(t.Context(), fired("mine/stored", 10, "")...)
	if err != nil || last == 0 {
		t.Fatal(last, err)
	}
	l, err := c.Listen(t.Context(), client.ListenOptions{Tags: []string{"mine/stored"}, FromSeq: last - 4, UntilEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	want := 5
	for e, err := range l.All(t.Context()) {
		if err != nil || number(t, e) != want || e.Tag != "mine/stored" || !strings.HasPrefix(e.From, "user:") {
			t.Fatalf("%+v, %v, want number %d", e, err, want)
		}
		want++
	}
	if want != 10 || l.Position() < last || l.Lost() != 0 {
		t.Errorf("heard up to %d, position %d of %d, lost %d", want, l.Position(), last, l.Lost())
	}
}

func TestDurableListener(t *testing.T) {
	listen := func() (*client.Conn, *client.Listener) {
		t.Helper()
		for {
			c := connect(t, socket)
			l, err := c.Listen(t.Context(), client.ListenOptions{Tags: []string{"mine/durable"}, Durable: "worker"})
			if err == nil {
				return c, l
			}
			c.Close()
			if !errors.Is(err, client.ErrBusy) { // the daemon may not know yet that the previous one has ended
				t.Fatal(err)
			}
		}
	}
	hear := func(want int, confirm bool) {
		t.Helper()
		c, l := listen()
		defer c.Close()
		e, err := l.Next(t.Context())
		if err != nil || number(t, e) != want {
			t.Fatalf("%+v, %v, want number %d", e, err, want)
		}
		if confirm {
			if err := l.Confirm(t.Context(), e.Seq); err != nil {
				t.Error(err)
			}
		}
	}
	c, l := listen()
	if err := l.Confirm(t.Context(), l.Position()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fire(t.Context(), fired("mine/durable", 3, "")...); err != nil {
		t.Fatal(err)
	}
	c.Close()
	hear(0, true)
	hear(1, false)
	hear(1, true)
}

// Over TLS, a client may do what its credentials permit, and no more. The answer is many times
// longer than what may be under way, and one event is longer than a message.
func TestOverTLS(t *testing.T) {
	c := connect(t, "", client.Credentials(credentials))
	if _, err := c.Fire(t.Context(), client.Event{Tag: "other"}); !errors.Is(err, client.ErrDenied) {
		t.Errorf("a tag that is not granted: %v", err)
	}
	operator := connect(t, socket)
	first, err := operator.Fire(t.Context(), fired("dash/many", 1, strings.Repeat("x", 1<<20-100))...)
	if err != nil {
		t.Fatal(err)
	}
	const count = 40
	for range count {
		if _, err := operator.Fire(t.Context(), fired("dash/many", 1, strings.Repeat("y", 700<<10))...); err != nil {
			t.Fatal(err)
		}
	}
	l, err := c.Listen(t.Context(), client.ListenOptions{Tags: []string{"dash/many"}, FromSeq: first, UntilEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	heard := 0
	for e, err := range l.All(t.Context()) {
		if err != nil || !json.Valid(e.Data) {
			t.Fatalf("after %d: %v", heard, err)
		}
		heard++
	}
	if heard != count+1 {
		t.Errorf("heard %d, want %d", heard, count+1)
	}
	if _, err := c.Fire(t.Context(), client.Event{Tag: "dash/x", Data: []byte(`"` + strings.Repeat("z", 9<<20) + `"`)}); !errors.Is(err, client.ErrUsage) {
		t.Errorf("more than fits: %v", err)
	}
}

// With credentials, only their master is accepted; without them, the master refuses the
// connection.
func TestNotTheMaster(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "dash")
	if err := os.CopyFS(wrong, os.DirFS(credentials)); err != nil {
		t.Fatal(err)
	}
	other, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := other.Authority()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(wrong, "ca.pem"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Connect(t.Context(), "", client.Credentials(wrong)); !errors.Is(err, client.ErrServer) {
		t.Errorf("another master: %v", err)
	}
	if _, err := client.Connect(t.Context(), "tls://127.0.0.1:"+port); err == nil {
		t.Error("connected without credentials")
	}
	if code := salt(t.Context(), "creds", "gone", "--dir", filepath.Join(wrong, "gone"), "--address", "127.0.0.1:"+port, "-c", root); code != 0 {
		t.Fatal(code)
	}
	gone := connect(t, "", client.Credentials(filepath.Join(wrong, "gone")))
	l, err := gone.Listen(t.Context(), client.ListenOptions{Tags: []string{"dash/"}})
	if code := salt(t.Context(), "creds", "gone", "--revoke", "-c", root); code != 0 {
		t.Fatal(code)
	}
	if err == nil {
		_, err = l.Next(t.Context())
	}
	if !errors.Is(err, client.ErrLost) && !errors.Is(err, client.ErrDenied) {
		t.Errorf("revoked: %v", err)
	}
	if _, err := client.Connect(t.Context(), "", client.Credentials(filepath.Join(wrong, "gone"))); !errors.Is(err, client.ErrRefused) && err == nil {
		t.Errorf("connected with what was revoked: %v", err)
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	c := connect(t, socket)
	l, err := c.Listen(t.Context(), client.ListenOptions{Tags: []string{"never"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// makeCredentials makes separate credentials for a test; revoke revokes them.
func makeCredentials(t *testing.T, name string) (dir string, revoke func()) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), name)
	if code := salt(t.Context(), "creds", name, "--dir", dir, "--address", "127.0.0.1:"+port, "-c", root); code != 0 {
		t.Fatal(code)
	}
	return dir, func() {
		if code := salt(t.Context(), "creds", name, "--revoke", "-c", root); code != 0 {
			t.Error(code)
		}
	}
}

// What a client may run is granted under its name below external_auth: no other rule applies to
// it, in particular none for a user of the machine with that name.
func TestJobsOverTLS(t *testing.T) {
	dash := connect(t, "", client.Credentials(credentials))
	if got := returns(t, dash, client.Glob("web1"), client.Call("test.ping")); len(got) != 1 || got[0].Value != true {
		t.Errorf("test.ping: %+v", got)
	}
	if v, err := dash.Runner(t.Context(), client.Call("manage.up")); err != nil || fmt.Sprint(v) != "[web1]" {
		t.Errorf("manage.up: %v, %v", v, err)
	}
	jid, err := dash.Publish(t.Context(), client.Glob("web1"), client.Call("test.ping"))
	if err != nil {
		t.Fatal(err)
	}
	if own, err := dash.Follow(t.Context(), jid); err != nil {
		t.Errorf("its own job: %v", err)
	} else {
		own.Close()
	}
	theirs, err := connect(t, socket).Publish(t.Context(), client.Glob("web1"), client.Call("test.ping"))
	if err != nil {
		t.Fatal(err)
	}
	dir, _ := makeCredentials(t, "nobody")
	nobody := connect(t, "", client.Credentials(dir))
	run := func(c *client.Conn, target, function string) error {
		j, err := c.Run(t.Context(), client.Glob(target), client.Call(function))
		if err == nil {
			j.Close()
		}
		return err
	}
	follow := func(c *client.Conn, jid string) error { _, err := c.Follow(t.Context(), jid); return err }
	_, runner := dash.Runner(t.Context(), client.Call("manage.down"))
	_, wheel := dash.Wheel(t.Context(), client.Call("key.list_all"))
	for name, err := range map[string]error{
		"another function": run(dash, "web1", "cmd.run"), "another target": run(dash, "*", "test.ping"), "another runner": runner, "a wheel function": wheel,
		"another's job": follow(dash, theirs), "without a rule": run(nobody, "web1", "test.ping"), "another client's job": follow(nobody, jid),
	} {
		if !errors.Is(err, client.ErrDenied) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}

// Over the network as on the master's machine, a connection with a login has the rights of the
// login, and no longer those of its credentials.
func TestLoginOverTLS(t *testing.T) {
	dir, _ := makeCredentials(t, "laptop")
	c := connect(t, "", client.Credentials(dir))
	if _, err := c.Login(t.Context(), client.Login{Backend: "client", User: "dash", Password: "x"}); !errors.Is(err, client.ErrDenied) {
		t.Errorf("as another client: %v", err)
	}
	if _, err := c.Login(t.Context(), client.Login{Backend: "sharedsecret", User: "ada", Password: "secret word"}); err != nil {
		t.Fatal(err)
	}
	if got := returns(t, c, client.Glob("web1"), client.Call("test.echo", 1)); len(got) != 1 || got[0].Value != int64(1) {
		t.Errorf("test.echo: %+v", got)
	}
	if _, err := c.Run(t.Context(), client.Glob("web1"), client.Call("cmd.run", "id")); !errors.Is(err, client.ErrDenied) {
		t.Errorf("what ada may not: %v", err)
	}
	d := connect(t, "", client.Credentials(credentials))
	if _, err := d.Login(t.Context(), client.Login{Backend: "sharedsecret", User: "ada", Password: "secret word"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Fire(t.Context(), client.Event{Tag: "dash/x"}); !errors.Is(err, client.ErrDenied) {
		t.Errorf("ada fires what dash may: %v", err)
	}
	if _, err := d.Runner(t.Context(), client.Call("manage.up")); !errors.Is(err, client.ErrDenied) {
		t.Errorf("ada runs what dash may: %v", err)
	}
}

// Streams end when the credentials are revoked, and when the token of the login is.
func TestRevokedEndsStreams(t *testing.T) {
	dir, revoke := makeCredentials(t, "gone2")
	c := connect(t, "", client.Credentials(dir))
	s, err := c.Login(t.Context(), client.Login{Backend: "sharedsecret", User: "ada", Password: "secret word", MakeToken: true})
	if err != nil {
		t.Fatal(err)
	}
	byToken := connect(t, "", client.Credentials(dir))
	if _, err := byToken.Login(t.Context(), client.Login{Token: s.Token}); err != nil {
		t.Fatal(err)
	}
	l, err := byToken.Listen(t.Context(), client.ListenOptions{Tags: []string{"ada/"}})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := c.Runner(t.Context(), client.Call("auth.list_tokens"))
	if err != nil {
		t.Fatal(err)
	}
	for id := range tokenIDs(tokens) {
		if _, err := c.Runner(t.Context(), client.Call("auth.del_token", id)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Next(t.Context()); !errors.Is(err, client.ErrDenied) {
		t.Errorf("the token is gone: %v", err)
	}
	other, err := c.Listen(t.Context(), client.ListenOptions{Tags: []string{"ada/"}})
	if err != nil {
		t.Fatal(err)
	}
	revoke()
	if _, err := other.Next(t.Context()); !errors.Is(err, client.ErrLost) {
		t.Errorf("the credentials are gone: %v", err)
	}
}

// tokenIDs returns the ids in the result of auth.list_tokens.
func tokenIDs(v any) iter.Seq[string] {
	list, _ := v.([]any)
	return func(yield func(string) bool) {
		for _, one := range list {
			m, _ := one.(map[string]any)
			if id, ok := m["id"].(string); ok && !yield(id) {
				return
			}
		}
	}
}

// An event that a program passes on undecoded is exactly as the daemon wrote it, and changes
// the position of the listener like a decoded event.
func TestRawEventsMoveThePosition(t *testing.T) {
	c := connect(t, socket)
	seq, err := c.Fire(t.Context(), client.Event{Tag: "raw/1", Data: []byte(`{"b":1,"a":2}`)}, client.Event{Tag: "other"}, client.Event{Tag: "raw/2", Data: []byte(`"text"`)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Listen(t.Context(), client.ListenOptions{Tags: []string{"raw/"}, FromSeq: seq - 2, UntilEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var lines []string
	for {
		some, err := l.NextLines(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range some {
			lines = append(lines, string(line))
		}
	}
	if len(lines) != 2 || !strings.Contains(lines[0], `"data":{"b":1,"a":2,"_stamp":`) || !strings.Contains(lines[1], `"data":"text"`) || l.Position() < seq || l.End() < seq {
		t.Errorf("%q, up to %d of %d", lines, l.Position(), l.End())
	}
	job, err := c.Run(t.Context(), client.Glob("web1"), client.Call("test.echo", "hello"))
	if err != nil {
		t.Fatal(err)
	}
	var step struct{ ID, State, Return string }
	for line, err := range job.Lines(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(line, &step); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if step.ID != "web1" || step.State != string(client.Done) || step.Return != "hello" {
		t.Errorf("the last step is %+v", step)
	}
	res, err := c.RunnerResult(t.Context(), client.Call("test.arg", "x"))
	if v, unread := res.Value(); err != nil || unread != nil || !res.Success || !strings.Contains(string(res.JSON), `"x"`) || v == nil {
		t.Errorf("%+v, %v, %v", res, err, unread)
	}
	if res, err = c.RunnerResult(t.Context(), client.Call("no.such")); !errors.Is(err, client.ErrFailed) {
		t.Errorf("a runner that is none: %+v, %v", res, err)
	}
}

// Different forms of the address of one master give the same address; invalid ones are errors.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{"salt": "tls://salt:4506", "tls://salt:1/": "tls://salt:1", "http://salt": "", "": ""} {
		got, err := client.ParseAddress(text)
		if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, client.ErrUsage) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
