package chaos

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
)

// lines are the events of what listen prints, by the tag of their round. It is written to as it comes, in any parts: with many
// rounds it is too long to be kept, or to be read again for each of them.
type lines struct {
	member string // where it was printed, in a cluster
	events map[string][]stored
	names  map[string]string // of streams, each once
	rest   []byte            // a line whose end has not come
	count  int
}

func newLines(member string) *lines {
	return &lines{member: member, events: map[string][]stored{}, names: map[string]string{}}
}

// of are the events of a round, in their order.
func (l *lines) of(tag string) []stored { return l.events[tag] }

// Write takes the next part. A last line that a kill has cut off is none.
func (l *lines) Write(b []byte) (int, error) {
	all := b
	if len(l.rest) > 0 {
		all = append(l.rest, b...)
	}
	for {
		line, rest, found := bytes.Cut(all, []byte("\n"))
		if !found {
			break
		}
		l.take(line)
		all = rest
	}
	l.rest = bytes.Clone(all)
	return len(b), nil
}

func (l *lines) take(line []byte) {
	var e struct {
		Tag    string `json:"tag"`
		Seq    int    `json:"seq"`
		Master string `json:"master"`
		Data   struct {
			payload
			Data payload `json:"data"` // it came by fire_master
		} `json:"data"`
	}
	if json.Unmarshal(line, &e) != nil {
		return
	}
	tag, ok := roundOf(e.Tag)
	if !ok {
		return
	}
	p := e.Data.payload
	if p.Stream == "" {
		p = e.Data.Data
	}
	l.count++
	l.events[tag] = append(l.events[tag], stored{id{l.name(p.Stream), p.N}, l.name(cmp.Or(e.Master, l.member)), e.Seq})
}

func (l *lines) name(s string) string {
	if had, ok := l.names[s]; ok {
		return had
	}
	l.names[s] = s
	return s
}

// roundOf is what the tags of all events of a round begin with.
func roundOf(tag string) (string, bool) {
	number, _, ok := strings.Cut(strings.TrimPrefix(tag, chaosTag), "/")
	return chaosTag + number + "/", ok && strings.HasPrefix(tag, chaosTag)
}

// chaosTag is what the tags of all events of all rounds begin with.
const chaosTag = "chaos/"
