package client_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/brinebus/brine/client"
)

// Operators may manage the journal, and others may not.
func TestJournal(t *testing.T) {
	c := connect(t, socket)
	id := rand.Text()
	last, err := c.FireWith(t.Context(), client.FireOptions{ID: id}, fired("journal/x", 3, "")...)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.FireWith(t.Context(), client.FireOptions{ID: id, First: 1}, fired("journal/x", 3, "")[1:]...); err != nil || again != last {
		t.Errorf("the same again is event %d, %v, want %d", again, err, last)
	}
	end, at, err := c.End(t.Context())
	if err != nil || end < last || at != "" {
		t.Errorf("the journal ends with %d %q, %v, behind %d", end, at, err, last)
	}
	s, err := c.Stat(t.Context())
	if err != nil || s.Journal.Last < last || s.MaxEvent != 1<<20 || s.Started.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := c.Fire(t.Context(), fired("journal/y", 1, "")...); err != nil { // the newest event is never removed
		t.Fatal(err)
	}
	n, err := c.Purge(t.Context(), client.PurgeOptions{Tags: []string{"journal/x"}})
	if err != nil || n != 3 {
		t.Errorf("%d events are purged, %v", n, err)
	}
	if err := c.ForgetPosition(t.Context(), "none", ""); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a position that is none: %v", err)
	}
	dash := connect(t, "", client.Credentials(credentials))
	if _, err := dash.Stat(t.Context()); !errors.Is(err, client.ErrNotFound) { // the bus does not offer this request to a client
		t.Errorf("a client looks at the state of the bus: %v", err)
	}
	if _, err := dash.Purge(t.Context(), client.PurgeOptions{}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a client purges: %v", err)
	}
}

// Dead letters belong to one user, in whatever way this user connects.
func TestDeadLetters(t *testing.T) {
	dash := connect(t, "", client.Credentials(credentials))
	seq, err := dash.Fire(t.Context(), fired("dash/dead", 1, "")...)
	if err != nil {
		t.Fatal(err)
	}
	letter := client.DeadLetter{Name: "hands", Seq: seq, Tag: "dash/dead", Event: json.RawMessage(`{"n":0}`), Command: []string{"false"}, Attempts: 2, Reason: "exit status 1"}
	if err := dash.KeepDeadLetter(t.Context(), letter); err != nil {
		t.Fatal(err)
	}
	list, err := dash.DeadLetters(t.Context(), "hands", 0)
	if err != nil || len(list) != 1 || list[0].Seq != seq || list[0].Reason != letter.Reason || list[0].Time.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	ada := connect(t, socket)
	if _, err := ada.Login(t.Context(), client.Login{Backend: "sharedsecret", User: "ada", Password: "secret word"}); err != nil {
		t.Fatal(err)
	}
	if list, err := ada.DeadLetters(t.Context(), "", 0); err != nil || len(list) != 0 {
		t.Errorf("ada sees %+v, %v", list, err)
	}
	taken, err := dash.TakeDeadLetter(t.Context(), list[0])
	if err != nil || taken.Letter.Reason != letter.Reason || taken.Context().Err() != nil {
		t.Fatalf("%+v, %v", taken, err)
	}
	other := connect(t, "", client.Credentials(credentials))
	if _, err := other.TakeDeadLetter(t.Context(), list[0]); !errors.Is(err, client.ErrBusy) {
		t.Errorf("what is taken is taken again: %v", err)
	}
	if err := taken.Release(t.Context()); err != nil || taken.Context().Err() == nil {
		t.Errorf("given back: %v", err)
	}
	if taken, err = other.TakeDeadLetter(t.Context(), list[0]); err != nil {
		t.Fatal(err)
	}
	if err := taken.Handled(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := dash.TakeDeadLetter(t.Context(), list[0]); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("what was handled: %v", err)
	}
	if err := dash.KeepDeadLetter(t.Context(), letter); err != nil {
		t.Fatal(err)
	}
	if gone, err := dash.DropDeadLetters(t.Context(), "hands", seq); err != nil || len(gone) != 1 {
		t.Errorf("%+v, %v", gone, err)
	}
	if list, err := dash.DeadLetters(t.Context(), "", 0); err != nil || len(list) != 0 {
		t.Errorf("left are %+v, %v", list, err)
	}
}

// A job of several commands, its output while it runs, and a preview.
func TestJobsInMoreWays(t *testing.T) {
	c := connect(t, socket)
	minions, err := c.Preview(t.Context(), client.Target{Expr: "id#w*", Type: "grain", Delimiter: "#"}, []client.Command{client.Call("test.ping")})
	if err != nil || fmt.Sprint(minions) != "[web1]" {
		t.Errorf("previewed %v, %v", minions, err)
	}
	job, err := c.RunAll(t.Context(), client.Glob("web1"), []client.Command{client.Call("test.ping"), client.Call("test.echo", "x"), client.Call("test.exception", "y")}, client.RunOptions{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range job.Returns(t.Context()) {
		each := r.Each
		if value, _ := r.Value.(map[string]any); err != nil || value["test.echo"] != "x" || value["test.ping"] != true || len(each) != 3 || !each["test.echo"].OK || each["test.exception"].OK || each["test.exception"].Retcode == 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	got := returns(t, c, client.Glob("web1"), client.Call("test.ping"))
	if len(got) != 1 || !got[0].Returned() || got[0].Each != nil {
		t.Errorf("a function alone: %+v", got)
	}
	if job, err = c.RunAll(t.Context(), client.Glob("web1"), []client.Command{client.Call("test.ping")}, client.RunOptions{Detach: true}); err != nil || job.ID == "" || fmt.Sprint(job.Minions) != "[web1]" {
		t.Fatalf("left to the master: %+v, %v", job, err)
	}
	for r, err := range job.Returns(t.Context()) {
		t.Errorf("of a job that was left to the master comes %+v, %v", r, err)
	}
	if job, err = c.Follow(t.Context(), job.ID); err != nil {
		t.Fatal(err)
	}
	for r, err := range job.Returns(t.Context()) {
		if err != nil || fmt.Sprint(r.Value) != "map[test.ping:true]" {
			t.Errorf("followed: %+v, %v", r, err)
		}
	}
	job, err = c.Run(t.Context(), client.Glob("web1"), client.Call("cmd.run", "echo out; echo bad >&2"), client.RunOptions{Output: true})
	if err != nil {
		t.Fatal(err)
	}
	wrote, final := "", 0
	for u, err := range job.Updates(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range u.Output {
			wrote += o.Text
		}
		if u.Final() {
			final++
		}
	}
	if final != 1 || wrote != "out\nbad\n" {
		t.Errorf("it wrote %q, and %d minions have ended", wrote, final)
	}
}

func TestRunnersInMoreWays(t *testing.T) {
	c := connect(t, socket)
	l, err := c.Listen(t.Context(), client.ListenOptions{Tags: []string{"salt/run/"}})
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.StartRunner(t.Context(), client.Call("test.arg", "x"), client.RunnerOptions{Timeout: time.Minute})
	if err != nil || job.ID == "" || job.Tag == "" {
		t.Fatalf("%+v, %v", job, err)
	}
	for e, err := range l.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Tag == job.Tag+"/ret" {
			break
		}
	}
	if err := c.PreviewRunner(t.Context(), client.Call("manage.up")); err != nil {
		t.Error(err)
	}
	dash := connect(t, "", client.Credentials(credentials))
	if err := dash.PreviewRunner(t.Context(), client.Call("manage.down")); !errors.Is(err, client.ErrDenied) {
		t.Errorf("a runner that is not granted: %v", err)
	}
	if err := dash.PreviewWheel(t.Context(), client.Call("key.list_all")); !errors.Is(err, client.ErrDenied) {
		t.Errorf("a wheel function that is not granted: %v", err)
	}
	var began client.RunnerJob
	_, err = c.Runner(t.Context(), client.Call("test.no_such"), client.RunnerOptions{Begun: func(j client.RunnerJob) { began = j }})
	var failed *client.RunnerError
	if !errors.Is(err, client.ErrFailed) || !errors.As(err, &failed) || failed.Function != "test.no_such" || failed.Reason != err.Error() || errors.Is(err, client.ErrDenied) {
		t.Errorf("a runner that is none: %v", err)
	}
	if began.ID == "" || began.Tag != "salt/run/"+began.ID {
		t.Errorf("what begins is told as %+v", began)
	}
	if v, err := c.Runner(t.Context(), client.Call("test.arg", "x"), client.RunnerOptions{Detach: true}); v != nil || err != nil {
		t.Errorf("a runner that is left to the master returns %v, %v", v, err)
	}
	if got, err := client.ServerFingerprint(t.Context(), "tls://127.0.0.1:"+port); err != nil || got != fingerprint(t) {
		t.Errorf("the server's fingerprint is %q, %v", got, err)
	}
}
