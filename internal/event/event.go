// Package event defines an event: a tag, data, and the sender. It has the rules of tags - which are
// valid, which belong to the master, under which subject the journal stores them - and no network
// code.
package event

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// MaxTag is the longest tag in bytes. Salt's own are below 350; the limit bounds a subject and a
// log line.
const MaxTag = 1024

// ErrTag is wrapped by the errors of CheckTag.
var ErrTag = errors.New("invalid event tag")

// ErrReserved is wrapped by the errors of CheckMinionTag for a tag space that belongs to the
// master.
var ErrReserved = errors.New("this tag belongs to the master")

// Event is one event as the journal stores it and listeners get it. The order of the fields is that
// of its text, see Append.
type Event struct {
	Tag  string          `json:"tag"`
	From string          `json:"from,omitempty"` // the sender as verified by the bus: a minion id, "user:NAME", "" for the daemon itself
	Data json.RawMessage `json:"data"`           // never empty; an object has Salt's _stamp
	Seq  uint64          `json:"seq,omitempty"`  // the sequence in the journal, from 1; 0 before it is stored

	text []byte // set by NewLong: the text, of which Data is a part; otherwise nil
}

// StampLayout is the format of _stamp in Salt's events: UTC without a zone.
const StampLayout = "2006-01-02T15:04:05.000000"

// New returns an event. If data is a JSON object, it gets the time as its _stamp, as Salt's
// listeners expect; other data is unchanged, and empty data becomes an empty object.
func New(tag string, data json.RawMessage, from string, now time.Time) (Event, error) {
	if err := CheckData(tag, data); err != nil {
		return Event{}, err
	}
	return NewValid(tag, data, from, now)
}

// NewValid is New for data that is already checked.
func NewValid(tag string, data json.RawMessage, from string, now time.Time) (Event, error) {
	if err := CheckTag(tag); err != nil {
		return Event{}, err
	}
	return Event{Tag: tag, Data: At(from, now).appendData(nil, data), From: from}, nil
}

// NewLong is New for data that may be long: write appends it as one line of about size bytes, to
// the buffer where it stays until it is stored. So it is copied once.
func NewLong(tag, from string, now time.Time, size int, write func(b []byte) ([]byte, error)) (Event, error) {
	if err := CheckTag(tag); err != nil {
		return Event{}, err
	}
	o := At(from, now)
	head := appendHead(make([]byte, 0, len(tag)+len(from)+size+2*len(StampLayout)+64), tag, from)
	b, err := write(head)
	if err != nil {
		return Event{}, err
	}
	data := b[len(head):]
	if err := CheckData(tag, data); err != nil {
		return Event{}, err
	}
	b = append(o.appendData(b[:len(head)], data), '}')
	return Event{Tag: tag, Data: b[len(head) : len(b)-1 : len(b)-1], From: from, text: b}, nil
}

// Text returns what Append would append. For an unchanged event of NewLong it is not a copy, so it
// must not be changed.
func (e Event) Text() []byte {
	if end := len(e.text) - 1; end > 0 && e.Seq == 0 && len(e.Data) > 0 && &e.Data[len(e.Data)-1] == &e.text[end-1] &&
		bytes.HasPrefix(e.text, appendHead(nil, e.Tag, e.From)) {
		return e.text[: end+1 : end+1]
	}
	return e.Append(make([]byte, 0, len(e.Tag)+len(e.From)+len(e.Data)+32))
}

// CheckData checks that data, which may be empty, is valid for an event with this tag.
func CheckData(tag string, data []byte) error {
	if len(data) > 0 && !value.Valid(data) {
		return fmt.Errorf("data of event %q: it is not valid JSON", tag)
	}
	return nil
}

// Origin is the common part of events that one sender fires at one time.
type Origin struct {
	from  string
	stamp []byte // in the format of _stamp
}

// At returns the origin of events that from fires now; "" is the daemon itself.
func At(from string, now time.Time) Origin {
	return Origin{from, now.UTC().AppendFormat(nil, StampLayout)}
}

// From returns the sender.
func (o Origin) From() string { return o.from }

// AppendNew appends to b the text of the event that New returns for the same tag and data, which
// must be checked already. So an event on its way into the journal is copied once.
func (o Origin) AppendNew(b []byte, tag string, data json.RawMessage) []byte {
	b = appendHead(b, tag, o.from)
	return append(o.appendData(b, data), '}')
}

// Size returns about how many bytes AppendNew appends.
func (o Origin) Size(tag string, data json.RawMessage) int {
	return len(tag) + len(o.from) + len(data) + len(o.stamp) + 64
}

// appendData appends valid data, and if it is an object, adds or replaces its key _stamp. The
// object is parsed only if it already has one: the common case appends a few bytes.
func (o Origin) appendData(b []byte, data json.RawMessage) []byte {
	text := bytes.Trim(data, " \t\r\n")
	if len(text) == 0 {
		text = []byte("{}")
	}
	if text[0] != '{' {
		return appendLine(b, text)
	}
	if mayHave(text, "_stamp") {
		text = unstamp(text)
	}
	b = appendLine(b, text)
	b = bytes.TrimRight(b[:len(b)-1], " \t\r\n")
	if b[len(b)-1] != '{' { // the object has members
		b = append(b, ',')
	}
	b = append(b, `"_stamp":"`...)
	return append(append(b, o.stamp...), `"}`...)
}

// mayHave reports whether the object text may have this key.
func mayHave(text []byte, key string) bool {
	if !bytes.Contains(text, []byte(key+`"`)) && !bytes.Contains(text, []byte(`\u`)) {
		return false
	}
	has := false
	_ = value.Members(text, func(k string, _ []byte) error { has = has || k == key; return nil }) // text is valid
	return has
}

// unstamp removes the key from a valid object, however it is written there.
func unstamp(text []byte) []byte {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(text, &m); err != nil {
		return text // it is invalid
	}
	if _, has := m["_stamp"]; !has {
		return text
	}
	delete(m, "_stamp")
	out, err := json.Marshal(m)
	if err != nil {
		return text // parts of valid JSON can always be written
	}
	return out
}

// CheckTag checks that tag can name an event: 1 to 1024 bytes of UTF-8 without control characters.
// Blanks, dots, wildcards and empty parts are kept exactly, since they are escaped in subjects.
func CheckTag(tag string) error {
	switch {
	case tag == "":
		return fmt.Errorf("%w: it is empty", ErrTag)
	case len(tag) > MaxTag:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrTag, len(tag), MaxTag)
	case !utf8.ValidString(tag):
		return fmt.Errorf("%w %q: it is not UTF-8", ErrTag, tag)
	}
	for _, r := range tag {
		if r < ' ' || r == 0x7f {
			return fmt.Errorf("%w %q: it has a control character", ErrTag, tag)
		}
	}
	return nil
}

// RefreshSpace has the events that a minion has sent its grains again, each with its id.
const RefreshSpace = "minion/refresh"

// Speaker returns whose event it is: the sender, or for a return and new grains, which the daemon
// itself fires as often as a minion sends them, that minion. Nobody else can fire those tags without
// a sender.
func (h Head) Speaker() string {
	if h.From != "" {
		return h.From
	}
	if id, ok := strings.CutPrefix(h.Tag, RefreshSpace+"/"); ok {
		return id
	}
	_, minion := cutReturn(h.Tag)
	return minion
}

// ReturnOf returns the id of the job whose return has this tag, "" for another tag. It is the
// second tag of the return, which old programs listen for.
func ReturnOf(tag string) (jid string) {
	jid, _ = cutReturn(tag)
	return jid
}

// cutReturn splits the tag of a return.
func cutReturn(tag string) (jid, minion string) {
	parts := strings.SplitN(tag, "/", 5)
	if len(parts) < 5 || parts[0] != "salt" || parts[1] != "job" || parts[3] != "ret" {
		return "", ""
	}
	return parts[2], parts[4]
}

// masterSpaces are the tag spaces in which only the master may fire; each name includes itself and
// everything below it.
var masterSpaces = []string{
	"key", "minion", AuditSpace, JournalSpace, "salt/auth", "salt/beacon", "salt/job", "salt/key", "salt/minion", "salt/peer",
	"salt/presence", "salt/run", "salt/wheel",
}

// AuditSpace has the events of the audit log, JournalSpace those of the journal about its size and
// files.
const (
	AuditSpace   = "salt/audit"
	JournalSpace = "salt/journal"
)

// JournalLost is the tag of the event about a part of the journal, or of other data of the daemon,
// that has become unreadable.
const JournalLost = JournalSpace + "/lost"

// IsAudit reports whether tag belongs to the audit log.
func IsAudit(tag string) bool { return tag == AuditSpace || strings.HasPrefix(tag, AuditSpace+"/") }

// CheckMinionTag checks that the minion id may fire tag on the master's bus: nothing in the
// master's tag spaces except below its own salt/minion/<id>, salt/beacon/<id> and
// minion/refresh/<id>. Upper case, doubled, leading and trailing slashes, blanks, and parts such as
// .. that are resolved in paths do not help to get into such a space. Characters that only look
// like ASCII do not help either: they just make other tags.
func CheckMinionTag(id salt.MinionID, tag string) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	for _, own := range []string{"salt/minion/" + string(id), "salt/beacon/" + string(id), RefreshSpace + "/" + string(id)} {
		if (tag == own || strings.HasPrefix(tag, own+"/")) && !climbs(tag) {
			return nil
		}
	}
	plain := normalise(tag)
	if plain == "" {
		return fmt.Errorf("%w %q: it has no part", ErrTag, tag)
	}
	if _, err := salt.ParseJID(strings.Split(plain, "/")[0]); err == nil {
		return fmt.Errorf("%w: %q, a bare job id announces a job", ErrReserved, tag)
	}
	if space := cmp.Or(spaceOf(plain), spaceOf(resolve(plain))); space != "" {
		return fmt.Errorf("%w: %q is within %s", ErrReserved, tag, space)
	}
	return nil
}

// spaceOf returns the master's tag space of a normalised tag; "" for none.
func spaceOf(plain string) string {
	for _, space := range masterSpaces {
		if plain == space || strings.HasPrefix(plain, space+"/") {
			return space
		}
	}
	return ""
}

// Reserved reports whether a tag is in the tag spaces of the master, or could be mistaken for such
// a tag.
func Reserved(tag string) bool {
	plain := normalise(tag)
	_, err := salt.ParseJID(strings.Split(plain, "/")[0])
	return plain == "" || err == nil || spaceOf(plain) != "" || spaceOf(resolve(plain)) != ""
}

// climbs reports whether the tag has a part that is resolved in paths.
func climbs(tag string) bool {
	for part := range strings.SplitSeq(tag, "/") {
		if p := strings.TrimSpace(part); p == "." || p == ".." {
			return true
		}
	}
	return false
}

// resolve returns a normalised tag as if it were a path.
func resolve(plain string) string {
	if !climbs(plain) {
		return plain
	}
	return strings.TrimPrefix(path.Clean("/"+plain), "/")
}

// normalise maps tags that a careless reader would take for the same to one tag.
func normalise(tag string) string {
	parts := strings.FieldsFunc(strings.ToLower(tag), func(r rune) bool { return r == '/' })
	kept := parts[:0]
	for _, p := range parts {
		if p = strings.TrimSpace(p); p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, "/")
}
