package journal_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/journal"
)

// TestHostileQuestionsToALink: a client with the key of a member that requests anything but its
// own messages gets no consumer: neither one that delivers to others, nor one that slows or
// blocks the journal. A valid request after these is answered.
func TestHostileQuestionsToALink(t *testing.T) {
	a := startOwner(t, t.TempDir(), "m1-a", "127.0.0.1:0")
	addTo(t, a.journal, "one")
	to := bus.Link{Owner: "m1-a", Reader: "m2-b"}
	evil, m := startMirror(t, t.TempDir(), a.broker.Links.Addr(), to.Owner, to.Reader)
	heard(t, m, 1)
	nc := evil.Conn()
	answers, err := nc.SubscribeSync("$JSC.R.probe")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(body string) {
		if err := nc.PublishRequest(to.Create(bus.JournalStream), "$JSC.R.probe", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	for _, deliver := range []string{
		"", ">", "*", "salt.minion.web1.job", "salt.event.salt.key", "$JS.API.STREAM.DELETE.EVENTS", "_INBOX.master.x", to.Deliver(), to.Deliver() + ".", to.Deliver() + ".>", to.Deliver() + ".a.*",
		to.Deliver() + ".a b", to.Deliver() + ".a\r\nPUB x 0", to.Deliver() + "X.a", bus.Link{Owner: "m1-a", Reader: "m3-c"}.Deliver() + ".a", bus.Link{Owner: "m2-b", Reader: "m2-b"}.Deliver() + ".a",
	} {
		ask(fmt.Sprintf(`{"config":{"deliver_subject":%q,"ack_policy":"none"}}`, deliver))
	}
	for _, body := range []string{"", "null", "[]", "7", `{"config":7}`, `{"config":{"opt_start_seq":-1,"deliver_subject":"` + to.Deliver() + `.a"}}`, strings.Repeat("[", 500<<10), strings.Repeat("\x00", 900<<10)} {
		ask(body)
	}
	wish := `{"stream_name":"AUDIT","config":{"durable_name":"stays","name":"../x","deliver_subject":%q,"deliver_group":"g","ack_policy":"explicit","max_ack_pending":1,"opt_start_seq":1,"filter_subject":"x","inactive_threshold":1,"rate_limit_bps":1,"mem_storage":true,"idle_heartbeat":1}}`
	ask(fmt.Sprintf(wish, to.Deliver()+".mine"))
	answer, err := answers.NextMsg(time.Minute)
	if err != nil {
		t.Fatal("the good question was not answered: ", err)
	}
	var made jetstream.ConsumerInfo
	if err := json.Unmarshal(answer.Data, &made); err != nil || made.Config.DeliverSubject != to.Deliver()+".mine" {
		t.Fatalf("the first answer is of another question: %s, %v", answer.Data, err)
	}
	if c := made.Config; made.Stream != journal.Stream || c.Durable != "" || c.AckPolicy != jetstream.AckNonePolicy || c.DeliverGroup != "" || c.FilterSubject != "" || c.RateLimit != 0 || c.InactiveThreshold != 10*time.Second {
		t.Errorf("what it asked for was made, not what a mirror has: %+v of %s", c, made.Stream)
	}
	js, err := jetstream.New(a.broker.Conn())
	if err != nil {
		t.Fatal(err)
	}
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		list := s.ListConsumers(t.Context())
		for c := range list.Info() {
			if d := c.Config.DeliverSubject; d != "" && (name != journal.Stream || d != made.Config.DeliverSubject) {
				t.Errorf("the consumer %s of %s sends to %q", c.Name, name, d)
			}
		}
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
}

// A journal whose sequences jump forward and back, with messages of any size, subject and
// header, is mirrored correctly: each sequence once, ascending, and readers get what follows
// the invalid messages.
func TestAMirrorOfAHostileOwner(t *testing.T) {
	a := startOwner(t, t.TempDir(), "m1-a", "127.0.0.1:0")
	addTo(t, a.journal, "first")
	s, m := startMirror(t, t.TempDir(), a.broker.Links.Addr(), "m1-a", "m2-b")
	heard(t, m, 1)
	js, err := jetstream.New(a.broker.Conn())
	if err != nil {
		t.Fatal(err)
	}
	say := func(subject string, header nats.Header, body []byte) {
		t.Helper()
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: header, Data: body}); err != nil {
			t.Fatal(err)
		}
	}
	event := func(tag string) []byte { return filled(tag, "x", 1).Append(nil) }
	say("salt.event.rubbish", nil, []byte("{"))
	say("salt.event.rubbish", nil, nil)
	say("salt.event.rubbish", nil, bytes.Repeat([]byte("x"), 900<<10))
	for _, part := range []string{"x 0 99999999", "a 1 2", "-1 -1 -1", "", "a 0 0"} {
		say("salt.event.rubbish", nats.Header{"Part": {part}, "Salt-Part": {part}, "Nats-Sequence": {"3"}, "Nats-Stream": {"AUDIT"}}, event("part"))
	}
	// again is another journal with the same name, as after an old copy was restored.
	again := func(first uint64, subjects ...string) {
		t.Helper()
		if err := js.DeleteStream(t.Context(), journal.Stream); err != nil {
			t.Fatal(err)
		}
		// The server removes the folder of its last stream a moment later.
		waitFor(t, "the other journal", func() bool {
			_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: journal.Stream, Subjects: subjects, FirstSeq: first})
			return err == nil
		})
	}
	waitFor(t, "that the mirror has the rubbish", func() bool { last, err := m.Last(t.Context()); return err == nil && last == 9 })
	again(1<<60, "salt.event.>", "evil.>")
	say("salt.event.far", nil, event("far"))
	say("evil.subject", nil, event("subject"))
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "that the mirror has what is far ahead", func() bool { last, err := m.Last(t.Context()); return err == nil && last == 1<<60+1 })
	again(2, "salt.event.>")
	say("salt.event.back", nil, event("back"))
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	again(1<<60+2, "salt.event.>")
	say("salt.event.last", nil, event("last"))
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	got := heard(t, m, 1<<60+2)
	want := []string{"1first", fmt.Sprint(1<<60, "far"), fmt.Sprint(1<<60+1, "subject"), fmt.Sprint(1<<60+2, "last")}
	got = slices.DeleteFunc(got, func(s string) bool { return !slices.Contains(want, s) && !strings.HasSuffix(s, "back") })
	if !slices.Equal(got, want) {
		t.Errorf("the mirror has %v, want %v", got, want)
	}
}
