// Package event says what an event is: a tag, data, and who sent it. It holds
// the rules of tags - which exist, which belong to the master, where the journal
// files them - and no network.
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

// MaxTag is the longest tag in bytes. Salt's own are below 350; the limit keeps
// a subject and a log line in bounds.
const MaxTag = 1024

// ErrTag is wrapped by the errors of CheckTag.
var ErrTag = errors.New("invalid event tag")

// ErrReserved is wrapped by the errors of CheckMinionTag for a tag space that
// belongs to the master.
var ErrReserved = errors.New("this tag belongs to the master")

// Event is one event as the journal keeps it and listeners get it. The order of
// the fields is that of its text, see Append.
type Event struct {
	Tag  string          `json:"tag"`
	From string          `json:"from,omitempty"` // the sender as the bus verified it: a minion id, "user:NAME", "" for the daemon itself
	Data json.RawMessage `json:"data"`           // never empty; an object carries Salt's _stamp
	Seq  uint64          `json:"seq,omitempty"`  // the sequence in the journal, from 1; 0 before it is stored

	text []byte // of NewLong: the text, of which Data is a part; else nil
}

// StampLayout is the form of _stamp in Salt's events: UTC without a zone.
const StampLayout = "2006-01-02T15:04:05.000000"

// New returns an event. data that is a JSON object gets the moment as its
// _stamp, as listeners of Salt expect it; other data stays as it is, and none
// becomes an empty object.
func New(tag string, data json.RawMessage, from string, now time.Time) (Event, error) {
	if err := CheckData(tag, data); err != nil {
		return Event{}, err
	}
	return NewValid(tag, data, from, now)
}

// NewValid is New for data that was checked.
func NewValid(tag string, data json.RawMessage, from string, now time.Time) (Event, error) {
	if err := CheckTag(tag); err != nil {
		return Event{}, err
	}
	return Event{Tag: tag, Data: At(from, now).appendData(nil, data), From: from}, nil
}

// NewLong is New for data that may be long: write appends it, about size bytes of one line,
// where it stays until it is stored. It is copied once.
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

// Text is what Append writes behind nothing; of an event of NewLong that is not changed it
// is no copy. It is not to be changed.
func (e Event) Text() []byte {
	if end := len(e.text) - 1; end > 0 && e.Seq == 0 && len(e.Data) > 0 && &e.Data[len(e.Data)-1] == &e.text[end-1] &&
		bytes.HasPrefix(e.text, appendHead(nil, e.Tag, e.From)) {
		return e.text[: end+1 : end+1]
	}
	return e.Append(make([]byte, 0, len(e.Tag)+len(e.From)+len(e.Data)+32))
}

// CheckData checks that data, which may be empty, can be that of the event tag.
func CheckData(tag string, data []byte) error {
	if len(data) > 0 && !value.Valid(data) {
		return fmt.Errorf("data of event %q: it is not valid JSON", tag)
	}
	return nil
}

// Origin is what events have in common that one sender fires at one moment.
type Origin struct {
	from  string
	stamp []byte // as _stamp has it
}

// At is the origin of what from fires now; "" is the daemon itself.
func At(from string, now time.Time) Origin {
	return Origin{from, now.UTC().AppendFormat(nil, StampLayout)}
}

// From is the sender.
func (o Origin) From() string { return o.from }

// AppendNew writes behind b the text of the event that New returns for the same tag
// and data, which must be checked already. So an event on its way into the journal is
// copied once.
func (o Origin) AppendNew(b []byte, tag string, data json.RawMessage) []byte {
	b = appendHead(b, tag, o.from)
	return append(o.appendData(b, data), '}')
}

// Size is how many bytes AppendNew writes, about.
func (o Origin) Size(tag string, data json.RawMessage) int {
	return len(tag) + len(o.from) + len(data) + len(o.stamp) + 64
}

// appendData writes data that is valid, and if it is an object adds or replaces its
// key _stamp. The object is taken apart only when it already has one: the common case
// appends a few bytes.
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
	if b[len(b)-1] != '{' { // it has members
		b = append(b, ',')
	}
	b = append(b, `"_stamp":"`...)
	return append(append(b, o.stamp...), `"}`...)
}

// mayHave says whether the object text may have this key.
func mayHave(text []byte, key string) bool {
	if !bytes.Contains(text, []byte(key+`"`)) && !bytes.Contains(text, []byte(`\u`)) {
		return false
	}
	has := false
	_ = value.Members(text, func(k string, _ []byte) error { has = has || k == key; return nil }) // text is valid
	return has
}

// unstamp takes the key out of a valid object, however it is written there.
func unstamp(text []byte) []byte {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(text, &m); err != nil {
		return text // it is not valid
	}
	if _, has := m["_stamp"]; !has {
		return text
	}
	delete(m, "_stamp")
	out, err := json.Marshal(m)
	if err != nil {
		return text // parts of what was read are always written
	}
	return out
}

// CheckTag checks that tag can name an event: 1 to 1024 bytes of UTF-8 without
// control characters. Blanks, dots, wildcards and empty parts are carried
// exactly, since the subject of the bus is made by escaping.
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

// Speaker is whose event it is: the sender, and of a return, which the daemon itself
// fires, the minion that has returned. Nobody else can fire that tag without a sender.
func (h Head) Speaker() string {
	if h.From != "" {
		return h.From
	}
	parts := strings.SplitN(h.Tag, "/", 5)
	if len(parts) < 5 || parts[0] != "salt" || parts[1] != "job" || parts[3] != "ret" {
		return ""
	}
	return parts[4]
}

// masterSpaces are the tag spaces in which only the master speaks; a name here
// owns itself and everything below it.
var masterSpaces = []string{
	"key", "minion", AuditSpace, JournalSpace, "salt/auth", "salt/beacon", "salt/job", "salt/key", "salt/minion", "salt/peer",
	"salt/presence", "salt/run", "salt/wheel",
}

// AuditSpace holds the events of the audit log, JournalSpace what the journal says of
// its own room and files.
const (
	AuditSpace   = "salt/audit"
	JournalSpace = "salt/journal"
)

// JournalLost is the tag of the event that tells of a part of the journal, or of what
// else the daemon keeps, that cannot be read any more.
const JournalLost = JournalSpace + "/lost"

// IsAudit says whether tag belongs to the audit log.
func IsAudit(tag string) bool { return tag == AuditSpace || strings.HasPrefix(tag, AuditSpace+"/") }

// CheckMinionTag checks that the minion id may fire tag on the master's bus:
// nothing in the master's spaces except what is below its own salt/minion/<id>,
// salt/beacon/<id> and minion/refresh/<id>. Letter case, doubled, leading and
// trailing slashes, blanks, and parts such as .. that a reader of paths would resolve
// do not help to slip into a space, nor do characters that only look like ASCII: those
// are simply other tags.
func CheckMinionTag(id salt.MinionID, tag string) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	for _, own := range []string{"salt/minion/" + string(id), "salt/beacon/" + string(id), "minion/refresh/" + string(id)} {
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

// spaceOf is the master's space that a normalised tag lies in; "" for none.
func spaceOf(plain string) string {
	for _, space := range masterSpaces {
		if plain == space || strings.HasPrefix(plain, space+"/") {
			return space
		}
	}
	return ""
}

// Reserved says whether a tag lies in the tag spaces of the master, or could be
// taken for one that does.
func Reserved(tag string) bool {
	plain := normalise(tag)
	_, err := salt.ParseJID(strings.Split(plain, "/")[0])
	return plain == "" || err == nil || spaceOf(plain) != "" || spaceOf(resolve(plain)) != ""
}

// climbs says whether a part of the tag is one that a reader of paths would resolve.
func climbs(tag string) bool {
	for part := range strings.SplitSeq(tag, "/") {
		if p := strings.TrimSpace(part); p == "." || p == ".." {
			return true
		}
	}
	return false
}

// resolve is a normalised tag as a reader of paths would take it.
func resolve(plain string) string {
	if !climbs(plain) {
		return plain
	}
	return strings.TrimPrefix(path.Clean("/"+plain), "/")
}

// normalise folds what a careless reader of tags would take as the same tag.
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
