package master_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/user"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/documented"
)

// eventCase is one case of testdata/events.json, which describes itself.
type eventCase struct {
	ID, Kind, Tag, JID, Get string
	Data                    json.RawMessage
	MaxEventSize            int             `json:"max_event_size"`
	MatchType               event.MatchType `json:"match_type"`
	Subscribed              [][]string
	Pending                 []string
	Load                    struct {
		User                     string
		ID, Fun, Return, Retcode value.Value
		Tgt, Arg                 value.Value
		TgtType                  string `json:"tgt_type"`
		Kwargs                   struct {
			Metadata value.Value
		}
	}
	Minions, Missing []salt.MinionID
	Verdict          json.RawMessage
}

// differentEvents are the cases that Brine answers differently on purpose.
var differentEvents = map[string][]string{
	"integers of any size stay integers":                                                    {"0412"},
	"an event beyond max_event_size is refused, not trimmed":                                {"0413", "0416"},
	"a listener gets all events that it asks for, whether or not another one has read them": {"0396"},
	"a job that no minion matches is not started, and has no events":                        {"0484"},
	"Brine does not have this event: progress, sub-events of states, syndics":               {"0347", "0348", "0354", "0480"},
	"the names of events are fixed: there is no function that builds them from parts":       {"0351", "0358", "0363", "0364", "0368", "0369", "0370", "0375", "0378", "0382"},
}

// events is what stands on the bus: tag and data, without the moment.
type events []map[string]any

func TestEventsAsInSalt(t *testing.T) {
	text, err := os.ReadFile("testdata/events.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []eventCase }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	documented.Differences(t, slices.Collect(maps.Keys(differentEvents))...)
	differs := map[string]string{}
	for reason, ids := range differentEvents {
		for _, id := range ids {
			differs["event_tags-"+id] = reason
		}
	}
	var count documented.Comparison
	trims := func(c eventCase) bool { return c.MaxEventSize > 0 && c.MaxEventSize < 1<<20 }
	t.Run("the smallest max_event_size", func(t *testing.T) {
		b := newEventBus(t, "max_event_size: 1KiB\n")
		for _, c := range file.Cases {
			if trims(c) {
				got, want := b.answers(t, c)
				judgeCase(t, c.ID, got, want, differs, &count)
			}
		}
	})
	b := newEventBus(t, "")
	for _, c := range file.Cases {
		if c.Kind == "tagify" || trims(c) {
			continue // the names come once all events have been fired
		}
		got, want := b.answers(t, c)
		judgeCase(t, c.ID, got, want, differs, &count)
	}
	for _, c := range file.Cases {
		if c.Kind != "tagify" {
			continue
		}
		var tag string
		if err := json.Unmarshal(c.Verdict, &tag); err != nil {
			t.Fatal(err)
		}
		judgeCase(t, c.ID, slices.Contains(b.shapes(t), shape(tag)), true, differs, &count)
	}
	for id := range differs {
		t.Errorf("%s is listed as different, and is not a case", id)
	}
	count.Stands(t, "events of the master")
}

// judgeCase compares one answer, and strikes the case from those that are listed.
func judgeCase(t *testing.T, id string, got, want any, differs map[string]string, count *documented.Comparison) {
	t.Helper()
	reason, listed := differs[id]
	delete(differs, id)
	same := reflect.DeepEqual(got, want)
	count.Count(documented.Refusal(same, isAnAnswer(got), isAnAnswer(want)))
	switch {
	case same && listed:
		t.Errorf("%s agrees with Salt, but is listed as different: %s", id, reason)
	case !same && !listed:
		t.Errorf("%s:\n got %v\nwant %v", id, got, want)
	}
}

// isAnAnswer tells whether anything came of it.
func isAnAnswer(v any) bool {
	list, ok := v.(events)
	return !ok || len(list) > 0
}

// eventBus is a running master with a minion.
type eventBus struct {
	user   *rpc.Conn
	answer *job.Report // of web1
	heard  []string    // what shapes returned
}

func newEventBus(t *testing.T, settings string) *eventBus {
	w := start(t, "auto_accept: True\npresence_events: True\nloop_interval: 1\n"+settings)
	b := &eventBus{user: w.user(), answer: pong(nil)}
	web1 := w.minion("web1", func(*job.Envelope) *job.Report { return b.answer })
	if err := web1.Ask(t.Context(), protocol.OpFire, protocol.Fire{Events: []event.Item{{Tag: "salt/minion/web1/start"}}}, nil); err != nil {
		t.Fatal(err)
	}
	return b
}

// answers returns our answer to a case, and Salt's.
func (b *eventBus) answers(t *testing.T, c eventCase) (got, want any) {
	t.Helper()
	switch c.Kind {
	case "fire":
		return b.fired(t, c), saltEvents(t, c.Verdict)
	case "pending":
		return pending(t, c), decodedCase(t, c.Verdict)
	case "return_events":
		return b.returned(t, c), saltEvents(t, c.Verdict)
	case "publish_events":
		return b.published(t, c), saltEvents(t, c.Verdict)
	}
	t.Fatalf("%s: unknown kind %s", c.ID, c.Kind)
	return nil, nil
}

// stored reads all that is stored by now, as who listens to these tags gets it; all without one.
func (b *eventBus) stored(t *testing.T, tags ...string) (list []event.Event) {
	t.Helper()
	end := "the-end/" + bus.NewNonce()
	if tags = append(tags, end); len(tags) == 1 {
		tags[0] = ""
	}
	if err := b.user.Ask(t.Context(), protocol.OpFire, protocol.Fire{Events: []event.Item{{Tag: end}}}, nil); err != nil {
		t.Fatal(err)
	}
	s, err := b.user.Call(protocol.OpListen, protocol.Listen{Tags: tags, Since: time.Now().Add(-time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ready protocol.Ready
	if err := s.Decode(t.Context(), &ready); err != nil {
		t.Fatal(err)
	}
	for {
		var e event.Event
		if err := s.Decode(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
		if list = append(list, e); e.Tag == end {
			return list
		}
	}
}

// fired fires an event, and reads what a listener gets.
func (b *eventBus) fired(t *testing.T, c eventCase) events {
	before := len(b.stored(t))
	if err := b.user.Ask(t.Context(), protocol.OpFire, protocol.Fire{Events: []event.Item{{Tag: c.Tag, Data: c.Data}}}, nil); err != nil {
		return nil
	}
	return plainEvents(t, b.stored(t)[before:], func(e event.Event) bool { return e.Tag == c.Tag })
}

// pending gives each subscription, and the one that reads, its own listener.
func pending(t *testing.T, c eventCase) any {
	hears := func(m event.MatchType, pattern string) (tags []any) {
		matcher, err := event.NewMatcher(m, []string{pattern})
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range c.Pending {
			if ok, err := matcher.Match(tag); err != nil {
				t.Fatal(err)
			} else if ok {
				tags = append(tags, tag)
			}
		}
		return tags
	}
	got := map[string]any{"returned": nil, "kept": []any{}}
	if tags := hears(c.MatchType, c.Get); len(tags) > 0 {
		got["returned"] = tags[0]
	}
	for _, s := range c.Subscribed {
		for _, tag := range hears(event.MatchType(s[1]), s[0]) {
			if s[0] != c.Get {
				got["kept"] = append(got["kept"].([]any), tag)
			}
		}
	}
	return got
}

// returned has web1 return what the case says, and reads the events of it.
func (b *eventBus) returned(t *testing.T, c eventCase) events {
	if c.Load.Fun.V == nil {
		return plainEvents(t, nil, nil) // there is no job that runs nothing
	}
	b.answer = &job.Report{State: job.Done, Return: c.Load.Return, Retcode: c.Load.Retcode, Success: value.Value{V: true}}
	q := protocol.Publish{Target: "web1", TargetType: "list", Timeout: 10}
	for _, name := range functionsOf(c.Load.Fun.V) {
		q.Commands = append(q.Commands, job.Command{Function: salt.Function(name)})
	}
	q.Compound = len(q.Commands) > 1
	begin, _, err := publish(t, b.user, q)
	if err != nil {
		t.Fatal(err)
	}
	list := plainEvents(t, b.stored(t, string(begin.JID)), func(e event.Event) bool {
		return e.Tag == string(begin.JID) && bytes.Contains(e.Data, []byte(`"return":`)) // and not to whom the job goes
	})
	list = append(list, plainEvents(t, b.stored(t, "salt/job/"), func(e event.Event) bool {
		return e.Tag == "salt/job/"+string(begin.JID)+"/ret/web1"
	})...)
	return asCase(list, begin.JID, "20240101000000000000", "cmd", "fun_args", "success", "user")
}

func functionsOf(v any) (names []string) {
	if list, ok := v.([]any); ok {
		for _, name := range list {
			names = append(names, name.(string))
		}
		return names
	}
	return []string{v.(string)}
}

// published publishes the job of a case, and reads its events before the first return.
func (b *eventBus) published(t *testing.T, c eventCase) events {
	args, kwargs := argument.Split(c.Load.Arg.V.([]any))
	q := protocol.Publish{Target: targetOf(c.Load.Tgt.V), TargetType: c.Load.TgtType, Timeout: 10, Metadata: c.Load.Kwargs.Metadata,
		Commands: []job.Command{{Function: salt.Function(c.Load.Fun.V.(string)), Args: args, Kwargs: kwargs}}}
	begin, _, err := publish(t, b.user, q)
	if err != nil {
		return plainEvents(t, nil, nil)
	}
	list := plainEvents(t, b.stored(t), func(e event.Event) bool {
		return e.Tag == string(begin.JID) || e.Tag == "salt/job/"+string(begin.JID)+"/new"
	})
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if data := e["data"].(map[string]any); data["user"] == me.Username {
			data["user"] = c.Load.User // the one whom the kernel names is whoever runs this
		}
	}
	return asCase(list, begin.JID, c.JID, "metadata")
}

func targetOf(v any) string {
	if list, ok := v.([]any); ok {
		return strings.Join(functionsOf(list), ",")
	}
	return v.(string)
}

// plainEvents are those that are wanted, without their moment; an empty list for none.
func plainEvents(t *testing.T, list []event.Event, wanted func(event.Event) bool) events {
	t.Helper()
	all := events{}
	for _, e := range list {
		if wanted(e) {
			data := decodedCase(t, e.Data).(map[string]any)
			delete(data, "_stamp")
			all = append(all, map[string]any{"tag": e.Tag, "data": data})
		}
	}
	return all
}

// asCase puts the job id of a case in place of ours, and leaves out what an event has
// beside what Salt's has.
func asCase(list events, jid salt.JID, of string, beside ...string) events {
	for _, e := range list {
		e["tag"] = strings.ReplaceAll(e["tag"].(string), string(jid), of)
		data := e["data"].(map[string]any)
		if data["jid"] == string(jid) {
			data["jid"] = of
		}
		for _, key := range beside {
			delete(data, key)
		}
	}
	return list
}

// saltEvents are the events of a verdict; nil for an error.
func saltEvents(t *testing.T, verdict json.RawMessage) events {
	t.Helper()
	v := decodedCase(t, verdict)
	if m, ok := v.(map[string]any); ok {
		if v = m["events"]; v == nil {
			return nil
		}
	}
	all := events{}
	for _, one := range v.([]any) {
		e := one.(map[string]any)
		delete(e, "stamped")
		all = append(all, e)
	}
	return all
}

func decodedCase(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	v, err := value.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// shape is a tag whose job id does not matter.
func shape(tag string) string {
	parts := strings.Split(tag, "/")
	for i, p := range parts {
		if _, err := salt.ParseJID(p); err == nil {
			parts[i] = "JID"
		}
	}
	return strings.Join(parts, "/")
}

// shapes are those of all events that master and minion have fired.
func (b *eventBus) shapes(t *testing.T) []string {
	if b.heard != nil {
		return b.heard
	}
	s, err := b.user.Call(protocol.OpRun, protocol.Run{Wheel: true, Command: job.Command{Function: "key.list_all"}})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		var answer json.RawMessage
		err = s.Decode(t.Context(), &answer)
	}
	s.Close()
	b.awaitPresence(t)
	for _, e := range b.stored(t) {
		b.heard = append(b.heard, shape(e.Tag))
	}
	return b.heard
}

// awaitPresence returns when the master has told who is there, and who has come.
func (b *eventBus) awaitPresence(t *testing.T) {
	for _, tag := range []string{"salt/presence/present", "salt/presence/change"} {
		s, err := b.user.Call(protocol.OpListen, protocol.Listen{Tags: []string{tag}, Since: time.Now().Add(-time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		var ready protocol.Ready
		var e event.Event
		if err := s.Decode(t.Context(), &ready); err != nil {
			t.Fatal(err)
		}
		if err := s.Decode(t.Context(), &e); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", tag, err))
		}
		s.Close()
	}
}
