package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// ForwardPrefix begins the tags of events on a minion's own bus that are forwarded to the master.
const ForwardPrefix = "fire_master"

// ErrForward is wrapped by the errors of ParseForward.
var ErrForward = errors.New("this cannot be forwarded to the master")

// Item is an event that is not stored yet.
type Item struct {
	Tag  string          `json:"tag"`
	Data json.RawMessage `json:"data,omitempty"` // none is an empty object
}

// Forward is what a minion sends to the master's bus: one event in the single form, or a list.
type Forward struct {
	Single bool
	Pretag *string // nil for none; an empty one counts
	Items  []Item  // never empty; exactly one in the single form
}

// Forwarded reports whether an event with this tag, fired on a minion's bus, is for the master.
func Forwarded(tag string) bool { return strings.HasPrefix(tag, ForwardPrefix) }

// ParseForward reads the data of an event whose tag is Forwarded: an object with tag and data, or
// with a list of events, each with its own tag and data, and optionally pretag. A missing or null
// key means none. The list takes precedence over tag and data, as in Salt; other keys are ignored,
// also an id: the sender is what the bus has verified.
func ParseForward(data json.RawMessage) (Forward, error) {
	f, err := parseForward(data)
	if err != nil {
		return Forward{}, salt.WithHint(fmt.Errorf("%w: %w", ErrForward, err),
			`the data is {"tag": TAG, "data": {...}} or {"events": [{"tag": TAG, "data": {...}}, ...]}, and may have a "pretag"`)
	}
	return f, nil
}

func parseForward(data json.RawMessage) (Forward, error) {
	keys, err := object(data)
	if err != nil {
		return Forward{}, fmt.Errorf("the data is %w", err)
	}
	var f Forward
	if raw, given := keys["pretag"]; given && !isNull(raw) {
		if f.Pretag = new(string); json.Unmarshal(raw, f.Pretag) != nil {
			return f, errors.New("pretag is not text")
		}
	}
	var list []json.RawMessage
	if raw, given := keys["events"]; given && json.Unmarshal(raw, &list) != nil {
		return f, errors.New("events is not a list")
	}
	if len(list) > 0 {
		f.Items, err = parseItems(list)
		return f, err
	}
	tag, err := tagOf(keys)
	f.Single, f.Items = true, []Item{{Tag: tag, Data: orEmpty(keys["data"])}}
	return f, err
}

// parseItems reads the events of a list. If one has no data, the item itself is the data, as in
// Salt.
func parseItems(list []json.RawMessage) ([]Item, error) {
	items := make([]Item, len(list))
	for i, raw := range list {
		keys, err := object(raw)
		if err != nil {
			return nil, fmt.Errorf("event %d of the list is %w", i+1, err)
		}
		if items[i].Tag, err = tagOf(keys); err != nil {
			return nil, fmt.Errorf("event %d of the list: %w", i+1, err)
		}
		data, given := keys["data"]
		if !given {
			data = raw
		}
		items[i].Data = orEmpty(data)
		if _, err := object(items[i].Data); err != nil {
			return nil, fmt.Errorf("the data of event %d of the list, %q, is %w", i+1, items[i].Tag, err)
		}
	}
	return items, nil
}

func tagOf(keys map[string]json.RawMessage) (string, error) {
	raw, given := keys["tag"]
	if !given || isNull(raw) {
		return "", errors.New("there is no tag")
	}
	var tag string
	if err := json.Unmarshal(raw, &tag); err != nil {
		return "", errors.New("the tag is not text")
	}
	if tag == "" {
		return "", errors.New("the tag is empty")
	}
	return tag, nil
}

// object parses an object with its exact keys: encoding/json would accept "Tag" for a struct field
// named "tag".
func object(raw json.RawMessage) (map[string]json.RawMessage, error) {
	keys := map[string]json.RawMessage{}
	if value.Members(raw, func(key string, v []byte) error { keys[key] = v; return nil }) != nil {
		return nil, errors.New("not an object")
	}
	return keys, nil
}

func isNull(raw json.RawMessage) bool { return strings.TrimSpace(string(raw)) == "null" }

func orEmpty(data json.RawMessage) json.RawMessage {
	if len(data) == 0 || isNull(data) {
		return json.RawMessage("{}")
	}
	return data
}

// single returns Salt's form of a minion's event on the master's bus, with the keys in Salt's
// order.
func single(id salt.MinionID, pretag *string, data json.RawMessage, tag string) json.RawMessage {
	b := make([]byte, 0, len(id)+len(data)+len(tag)+96)
	b = appendText(append(b, `{"id":`...), string(id))
	b = append(b, `,"cmd":"_minion_event","pretag":`...)
	if pretag == nil {
		b = append(b, "null"...)
	} else {
		b = appendText(b, *pretag)
	}
	b = appendLine(append(b, `,"data":`...), data)
	return append(appendText(append(b, `,"tag":`...), tag), '}')
}

// Shape returns the events for the master's bus. A single one is wrapped together with the id of
// its verified sender. Those of a list are unchanged; with a pretag each is fired with its own tag,
// and again with pretag, a slash and its tag. Their data is valid.
func (f Forward) Shape(id salt.MinionID) ([]Item, error) {
	shaped := make([]Item, 0, 2*len(f.Items))
	for _, item := range f.Items {
		data := compact(orEmpty(item.Data))
		if !value.Valid(data) {
			return nil, fmt.Errorf("event %q: its data is not JSON", item.Tag)
		}
		if f.Single {
			data = single(id, f.Pretag, data, item.Tag)
		}
		shaped = append(shaped, Item{item.Tag, data})
		if !f.Single && f.Pretag != nil {
			shaped = append(shaped, Item{under(*f.Pretag, item.Tag), data})
		}
	}
	return shaped, nil
}

// Outline is an event as Shape returns it, but without its data.
type Outline struct {
	Tag  string
	Size int // bytes of the data
}

// Outlines returns the outlines of the events that Shape returns, for valid data: to check whether
// they may be fired, they need not be built.
func (f Forward) Outlines(id salt.MinionID) []Outline {
	list := make([]Outline, 0, 2*len(f.Items))
	for _, item := range f.Items {
		size := len(compact(orEmpty(item.Data)))
		if f.Single {
			size += len(single(id, f.Pretag, nil, item.Tag))
		}
		list = append(list, Outline{item.Tag, size})
		if !f.Single && f.Pretag != nil {
			list = append(list, Outline{under(*f.Pretag, item.Tag), size})
		}
	}
	return list
}

// compact removes blanks between the parts of data, if there are any.
func compact(data json.RawMessage) json.RawMessage {
	if !bytes.ContainsAny(data, " \t\r\n") {
		return data
	}
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return data // it is invalid, and is checked elsewhere
	}
	return b.Bytes()
}

func under(pretag, tag string) string {
	if pretag == "" {
		return tag
	}
	return pretag + "/" + tag
}

// MasterTag returns the tag of an event that a minion fires on its own bus about its master: what
// is alive, connected, disconnected or failback. For alive, the tag has the address of the master.
func MasterTag(what, master string) string {
	if what == "alive" && master != "" {
		return "__master_alive_" + master
	}
	return "__master_" + what
}
