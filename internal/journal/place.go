package journal

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/bus"
)

// Kind is what a stream of the store holds.
type Kind int

// The kinds of streams.
const (
	UnknownKind Kind = iota
	EventsKind       // a journal of events
	MirrorKind       // another master's journal, which nobody here writes
	QueueKind
	TableKind
)

// tablePrefix begins the names of streams that are tables.
const tablePrefix = "KV_"

// Place is what a stream of a store is, and whose. The streams of a single master belong to
// nobody, except what is left of other masters. In a cluster each member has a journal, queues
// and tables of its own, and the other tables are shared.
type Place struct {
	Kind   Kind
	Name   string // of the queue or table
	Member string // whose it is, "" for nobody
	Own    bool   // in a cluster it is not shared
}

// PlaceOf returns what the stream of this name is; settings are its settings as JSON.
func PlaceOf(stream string, settings []byte) (Place, error) {
	var c jetstream.StreamConfig
	if err := json.Unmarshal(settings, &c); err != nil {
		return Place{}, fmt.Errorf("settings of the stream %s: %w", stream, err)
	}
	p := Place{Own: true}
	named := false
	switch name, table := strings.CutPrefix(stream, tablePrefix); {
	case table:
		p.Kind = TableKind
		p.Name, p.Member, named = strings.Cut(name, "-")
		p.Own = named || c.Metadata[ownMark] != ""
	case strings.HasPrefix(stream, mirrorPrefix):
		p.Kind, p.Member, named = MirrorKind, strings.TrimPrefix(stream, mirrorPrefix), true
	case stream == Stream, strings.HasPrefix(stream, memberPrefix):
		p.Kind = EventsKind
		_, p.Member, named = strings.Cut(stream, "_")
	default:
		p.Kind = QueueKind
		p.Name, p.Member, named = strings.Cut(stream, "_")
	}
	if named {
		if err := bus.CheckJournalName(p.Member); err != nil {
			return Place{}, fmt.Errorf("the stream %.100q: %w", stream, err)
		}
	}
	if stream == "" || p.Stream() != stream || strings.ContainsAny(stream, " .*>/\\\t\r\n") {
		return Place{}, fmt.Errorf("%.100q is not the name of a stream of a master", stream)
	}
	return p, nil
}

// Stream returns the name of the stream.
func (p Place) Stream() string {
	name, member := p.Name, "_"+p.Member
	switch p.Kind {
	case EventsKind:
		name = Stream
	case MirrorKind:
		return mirrorPrefix + p.Member
	case TableKind:
		name, member = tablePrefix+p.Name, "-"+p.Member
	}
	if p.Member == "" {
		return name
	}
	return name + member
}

// Subject returns the subject that a message of this stream has in the stream to, which is of
// the same kind.
func (p Place) Subject(subject string, to Place) string {
	for _, root := range []string{"$KV.", queueRoot} {
		from := root + strings.TrimPrefix(p.Stream(), tablePrefix)
		if rest, ok := strings.CutPrefix(subject, from); ok && (rest == "" || rest[0] == '.') {
			return root + strings.TrimPrefix(to.Stream(), tablePrefix) + rest
		}
	}
	return subject
}

// Configure returns the settings, as JSON, that a stream gets here, from the settings that it had
// elsewhere. copies are those of Options; 0 is a single master. What a stream keeps, its limits for
// example, is as it was.
func (p Place) Configure(settings []byte, copies int) ([]byte, error) {
	var c jetstream.StreamConfig
	if err := json.Unmarshal(settings, &c); err != nil {
		return nil, fmt.Errorf("settings of the stream %s: %w", p.Stream(), err)
	}
	c.Name, c.Placement, c.Mirror, c.Sources, c.SubjectTransform, c.RePublish = p.Stream(), nil, nil, nil, nil, nil
	c.Replicas, c.MirrorDirect = 1, false
	c.Metadata = maps.Clone(c.Metadata)
	maps.DeleteFunc(c.Metadata, func(key, _ string) bool { return strings.HasPrefix(key, "_nats.") || key == ownMark })
	switch p.Kind {
	case EventsKind:
		Options{MaxAge: c.MaxAge, Copies: copies, Name: p.Member}.configure(&c, c.MaxBytes)
	case MirrorKind:
		c.Subjects, c.AllowDirect = []string{c.Name}, true
	case QueueKind:
		configureQueue(&c, c.Name, copies)
	case TableKind:
		configureTable(&c, strings.TrimPrefix(c.Name, tablePrefix), copies)
		if p.Own {
			markOwn(&c)
		}
	default:
		return nil, fmt.Errorf("stream %s: unknown kind", c.Name)
	}
	return json.Marshal(c)
}

// ownMark is the metadata of a table that belongs to one member, or would in a cluster.
const ownMark = "own"

// markOwn marks a table. The map may belong to settings that c is compared with.
func markOwn(c *jetstream.StreamConfig) {
	m := map[string]string{ownMark: "true"}
	for key, value := range c.Metadata {
		m[key] = value
	}
	c.Metadata = m
}

// Entry returns the key of the entry of a table with this subject; false if it is none.
func (p Place) Entry(subject string) (key string, ok bool) {
	text, ok := strings.CutPrefix(subject, p.entries())
	if !ok || p.Kind != TableKind {
		return "", false
	}
	return kvText(text)
}

// EntrySubject returns the subject of an entry of a table.
func (p Place) EntrySubject(key string) string { return p.entries() + kvKey(key) }

func (p Place) entries() string { return "$KV." + strings.TrimPrefix(p.Stream(), tablePrefix) + "." }
