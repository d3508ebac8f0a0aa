package event

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/documented"
)

// forwardCase is one case of testdata/forward.json.
type forwardCase struct {
	ID       string            `json:"id"`
	Kind     string            `json:"kind"`
	Tag      string            `json:"tag"`
	Data     json.RawMessage   `json:"data"`
	CallArgs []json.RawMessage `json:"call_args"` // data and tag
	Load     json.RawMessage   `json:"load"`
	Type     string            `json:"type"`
	Master   *string           `json:"master"`
	Verdict  json.RawMessage   `json:"verdict"`
}

// different are the cases that Brine answers differently on purpose.
var different = map[string]string{
	"event_tags-0438": "a missing key means that there is no value; Salt loses the event",
	"event_tags-0446": "web1 cannot fire below salt/minion/web2, which belongs to another minion; in Salt it can",
	"event_tags-0450": "an event whose tag is a job id announces a job, and only the master may fire it",
	"event_tags-0455": "without a master the event waits in the outbox; Salt drops it",
	"event_tags-0463": "a missing key means that there is no value",
	"event_tags-0465": "the sender is the minion of the connection, whatever the request says",
	"event_tags-0468": "a key that is null means that there is no value",
	"event_tags-0471": "there are no tokens: the connection proves which minion it is",
}

func TestForwardLikeSalt(t *testing.T) {
	text, err := os.ReadFile("testdata/forward.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []forwardCase }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	documented.Differences(t, slices.Collect(maps.Values(different))...)
	unused := maps.Clone(different)
	var count documented.Comparison
	for _, c := range file.Cases {
		t.Run(c.ID, func(t *testing.T) {
			got, want := c.brine(t), c.salt(t)
			same := reflect.DeepEqual(got, want)
			reason, listed := unused[c.ID]
			delete(unused, c.ID)
			count.Count(documented.Refusal(same, isAnEvent(got), isAnEvent(want)))
			if !same && !listed {
				t.Errorf("%s\ngot  %v\nwant %v", c.Kind, got, want)
			}
			if same && listed {
				t.Errorf("listed as different (%s), and is the same: %v", reason, got)
			}
		})
	}
	for id := range unused {
		t.Errorf("%s is listed as different, and is not a case", id)
	}
	count.Stands(t, "events of minions")
}

// isAnEvent tells whether there is anything on the bus then.
func isAnEvent(answer any) bool {
	list, ok := answer.([]any)
	return !ok || len(list) > 0
}

// salt returns what the case says that then stands on the bus.
func (c forwardCase) salt(t *testing.T) any {
	if c.Kind == "master_event" {
		return decoded(t, c.Verdict)
	}
	type stored struct {
		MasterEvents []any `json:"master_events"`
	}
	var v struct {
		stored
		Master []stored `json:"master"`
	}
	if err := json.Unmarshal(c.Verdict, &v); err != nil {
		t.Fatal(err)
	}
	events := append([]any{}, v.MasterEvents...)
	for _, m := range v.Master {
		events = append(events, m.MasterEvents...)
	}
	for _, e := range events {
		delete(e.(map[string]any), "stamped")
	}
	return events
}

// brine does the same with the code of this package. An error is nothing on the
// bus.
func (c forwardCase) brine(t *testing.T) any {
	const id = salt.MinionID("web1")
	payload := c.Data
	switch {
	case c.Kind == "master_event":
		master := ""
		if c.Master != nil {
			master = *c.Master
		}
		return MasterTag(c.Type, master)
	case c.Kind == "minion_event":
		payload = c.Load
	case c.CallArgs != nil:
		payload, c.Tag = marshal(t, map[string]any{"data": c.CallArgs[0], "tag": c.CallArgs[1]}), ForwardPrefix
	}
	if c.Kind == "fire_master" && !Forwarded(c.Tag) {
		return []any{}
	}
	f, err := ParseForward(payload)
	if err != nil {
		return []any{}
	}
	items, err := f.Shape(id)
	if err != nil {
		t.Fatal(err)
	}
	events := []any{}
	for _, item := range items {
		if CheckMinionTag(id, item.Tag) != nil {
			return []any{}
		}
		events = append(events, map[string]any{"tag": item.Tag, "data": decoded(t, item.Data)})
	}
	return events
}

func marshal(t *testing.T, v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decoded(t *testing.T, raw json.RawMessage) (v any) {
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestParseForward(t *testing.T) {
	pre, none := "pre", ""
	tests := map[string]struct {
		data string
		want Forward
	}{
		"tag alone":                {`{"tag":"t"}`, Forward{Single: true, Items: []Item{{"t", raw(`{}`)}}}},
		"data of any kind":         {`{"tag":"t","data":1.0}`, Forward{Single: true, Items: []Item{{"t", raw(`1.0`)}}}},
		"empty list":               {`{"tag":"t","data":[],"events":[]}`, Forward{Single: true, Items: []Item{{"t", raw(`[]`)}}}},
		"pretag":                   {`{"tag":"t","pretag":"pre"}`, Forward{Single: true, Pretag: &pre, Items: []Item{{"t", raw(`{}`)}}}},
		"event without data":       {`{"id":"db1","events":[{"message":"m","tag":"t"}],"tag":null,"pretag":null,"data":null}`, Forward{Items: []Item{{"t", raw(`{"message":"m","tag":"t"}`)}}}},
		"event with data":          {`{"events":[{"tag":"a","data":{"n":1}},{"tag":"b","data":null}],"pretag":""}`, Forward{Pretag: &none, Items: []Item{{"a", raw(`{"n":1}`)}, {"b", raw(`{}`)}}}},
		"the names of keys exact":  {`{"tag":"t","Tag":"other","Events":7}`, Forward{Single: true, Items: []Item{{"t", raw(`{}`)}}}},
		"an id is nobody's to say": {`{"tag":"t","id":"db1","data":{"id":"db1"}}`, Forward{Single: true, Items: []Item{{"t", raw(`{"id":"db1"}`)}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseForward(raw(tt.data))
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("ParseForward(%s) = %+v, %v, want %+v", tt.data, got, err, tt.want)
			}
		})
	}
}

func TestForwardMistakes(t *testing.T) {
	tests := map[string]struct{ data, want string }{
		"nothing":            {``, "the data is not an object"},
		"null":               {`null`, "the data is not an object"},
		"text":               {`"x"`, "the data is not an object"},
		"list":               {`[{"tag":"t"}]`, "the data is not an object"},
		"neither":            {`{}`, "there is no tag"},
		"page without keys":  {`{"tag":null,"events":null}`, "there is no tag"},
		"empty tag":          {`{"tag":""}`, "the tag is empty"},
		"tag is a number":    {`{"tag":5}`, "the tag is not text"},
		"pretag is a number": {`{"tag":"t","pretag":5}`, "pretag is not text"},
		"events is an event": {`{"events":{"tag":"t"}}`, "events is not a list"},
		"events is text":     {`{"events":"t"}`, "events is not a list"},
		"an event is text":   {`{"events":["t"]}`, "event 1 of the list is not an object"},
		"second without tag": {`{"events":[{"tag":"t"},{"data":{}}]}`, "event 2 of the list: there is no tag"},
		"its tag is empty":   {`{"events":[{"tag":""}]}`, "event 1 of the list: the tag is empty"},
		"its data is text":   {`{"events":[{"tag":"t","data":"x"}]}`, `the data of event 1 of the list, "t", is not an object`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := ParseForward(raw(tt.data))
			want := ErrForward.Error() + ": " + tt.want
			if !errors.Is(err, ErrForward) || err.Error() != want || salt.Hint(err) == "" || !reflect.DeepEqual(f, Forward{}) {
				t.Errorf("ParseForward(%s) = %+v, %q with hint %q, want nothing and %q", tt.data, f, err, salt.Hint(err), want)
			}
		})
	}
}

func TestForwarded(t *testing.T) {
	for tag, want := range map[string]bool{"fire_master": true, "fire_master/x": true, "fire_mastery": true, "Fire_master": false, "x/fire_master": false, "": false} {
		if got := Forwarded(tag); got != want {
			t.Errorf("Forwarded(%q) = %v", tag, got)
		}
	}
}

// FuzzParseForward: what is taken has at least one event, each with a tag and
// valid data, and keeps its shape when it is written and read again.
func FuzzParseForward(f *testing.F) {
	for _, s := range []string{`{"tag":"t","data":{}}`, `{"events":[{"tag":"t","data":{"n":1}}],"pretag":"p"}`, `{"tag":5}`, `[]`, `{"events":[{"tag":"a"}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseForward(data)
		if err != nil {
			if got.Items != nil {
				t.Errorf("an error (%v) with events %v", err, got.Items)
			}
			return
		}
		if len(got.Items) == 0 || got.Single && len(got.Items) != 1 {
			t.Fatalf("%d events", len(got.Items))
		}
		items, err := got.Shape("web1")
		if err != nil || len(items) != len(got.Outlines("web1")) {
			t.Fatal(err, items)
		}
		for i, o := range got.Outlines("web1") {
			if o.Tag != items[i].Tag || o.Size != len(items[i].Data) {
				t.Errorf("event %d is outlined as %+v, and is %q with %d bytes", i, o, items[i].Tag, len(items[i].Data))
			}
		}
		for _, item := range slices.Concat(got.Items, items) {
			if item.Tag == "" || !json.Valid(item.Data) {
				t.Errorf("event %q with data %s", item.Tag, item.Data)
			}
		}
		again := map[string]any{"events": got.Items, "pretag": got.Pretag}
		if got.Single {
			again = map[string]any{"tag": got.Items[0].Tag, "data": got.Items[0].Data, "pretag": got.Pretag}
		}
		if second, err := ParseForward(marshal(t, again)); err != nil || len(second.Items) != len(got.Items) || second.Items[0].Tag != got.Items[0].Tag {
			t.Errorf("%s is read back as %v, %v", data, second, err)
		}
	})
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }
