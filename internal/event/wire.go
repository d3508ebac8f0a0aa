package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/value"
)

// The text of an event, in the journal and on its way to a listener, is one line of JSON with its
// keys in this order: tag, from, data, seq. With this order the daemon can read the tag and the
// sender, and add the sequence, without parsing data.

// Append appends e to b as one line of JSON without a line end. e.Data must be valid; line ends
// between its parts are removed.
func (e Event) Append(b []byte) []byte {
	b = appendLine(appendHead(b, e.Tag, e.From), e.Data)
	if e.Seq > 0 {
		b = appendSeq(b, e.Seq)
	}
	return append(b, '}')
}

// appendHead appends everything before the data.
func appendHead(b []byte, tag, from string) []byte {
	b = append(b, `{"tag":`...)
	b = appendText(b, tag)
	if from != "" {
		b = append(b, `,"from":`...)
		b = appendText(b, from)
	}
	return append(b, `,"data":`...)
}

// Read parses a text that Append wrote, without parsing the data, which is a slice of it.
func Read(text []byte) (e Event, err error) {
	err = value.Members(text, func(key string, v []byte) error {
		switch key {
		case "tag":
			return value.Text(v, &e.Tag)
		case "from":
			return value.Text(v, &e.From)
		case "data":
			e.Data = v
		case "seq":
			return json.Unmarshal(v, &e.Seq)
		}
		return nil
	})
	if err != nil {
		return Event{}, fmt.Errorf("unreadable event: %w", err)
	}
	return e, nil
}

// AppendStored appends to b stored, the text of an event without a sequence, with its sequence.
func AppendStored(b, stored []byte, seq uint64) []byte {
	b = append(b, stored[:len(stored)-1]...)
	return append(appendSeq(b, seq), '}')
}

const seqKey = `,"seq":`

func appendSeq(b []byte, seq uint64) []byte {
	return strconv.AppendUint(append(b, seqKey...), seq, 10)
}

// SeqOf returns the sequence at the end of a line that AppendStored or Append wrote; 0 if there is
// none.
func SeqOf(line []byte) uint64 {
	line = bytes.TrimSuffix(bytes.TrimRight(line, "\n"), []byte("}"))
	digits := len(line)
	for digits > 0 && line[digits-1] >= '0' && line[digits-1] <= '9' {
		digits--
	}
	if !bytes.HasSuffix(line[:digits], []byte(seqKey)) {
		return 0
	}
	seq, err := strconv.ParseUint(string(line[digits:]), 10, 64)
	if err != nil {
		return 0
	}
	return seq
}

// appendText appends s as a JSON string. encoding/json would escape < and >, which is hard to read.
func appendText(b []byte, s string) []byte {
	if plain(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf || c == 0x7f {
			return false
		}
	}
	return true
}

// appendLine appends JSON without line ends, which valid JSON has only between its parts.
func appendLine(b, data []byte) []byte {
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		return append(b, data...)
	}
	var buf bytes.Buffer
	if err := json.Compact(&buf, data); err != nil {
		return append(b, data...) // invalid JSON is an error of the caller; a reader will notice
	}
	return append(b, buf.Bytes()...)
}

// Head is the part of an event before its data.
type Head struct {
	Tag  string
	From string
}

// HeadOf parses the head of a text that Append wrote, without parsing the data.
func HeadOf(text []byte) (Head, error) {
	if h, _, ok := quickHead(text); ok {
		return h, nil
	}
	var e Event
	if err := json.Unmarshal(text, &e); err != nil {
		return Head{}, fmt.Errorf("unreadable event: %w", err)
	}
	if e.Tag == "" {
		return Head{}, errors.New("event without a tag")
	}
	return Head{e.Tag, e.From}, nil
}

// Heads parses the heads of consecutive texts. Neighbours usually have the same head, which then
// costs only a comparison. The zero value is ready to use.
type Heads struct {
	last  Head
	begin []byte // the text of the last event up to its data
}

// Of is HeadOf.
func (h *Heads) Of(text []byte) (Head, error) {
	if len(h.begin) > 0 && bytes.HasPrefix(text, h.begin) {
		return h.last, nil
	}
	head, n, ok := quickHead(text)
	if !ok {
		return HeadOf(text)
	}
	h.last, h.begin = head, append(h.begin[:0], text[:n]...)
	return head, nil
}

// quickHead also returns the offset of the data.
func quickHead(text []byte) (h Head, data int, ok bool) {
	rest, ok := bytes.CutPrefix(text, []byte(`{"tag":"`))
	if !ok {
		return h, 0, false
	}
	if h.Tag, rest, ok = quickText(rest); !ok {
		return h, 0, false
	}
	if from, has := bytes.CutPrefix(rest, []byte(`,"from":"`)); has {
		if h.From, rest, ok = quickText(from); !ok {
			return h, 0, false
		}
	}
	rest, ok = bytes.CutPrefix(rest, []byte(`,"data":`))
	return h, len(text) - len(rest), ok
}

// Retag returns the text of an event, which Append wrote, with another tag. A text in another
// format is returned unchanged.
func Retag(text []byte, tag string) []byte {
	head, data, ok := quickHead(text)
	if !ok {
		return text
	}
	return append(appendHead(make([]byte, 0, len(text)), tag, head.From), text[data:]...)
}

// Split splits a line that Append wrote for an event without sender and sequence, without parsing
// data. If ok is false, the line must be parsed as JSON. like is the tag that it returned for the
// previous line, or "": usually the tag is the same, and then it is not copied.
func Split(line []byte, like string) (tag string, data []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"tag":"`))
	if !ok {
		return "", nil, false
	}
	if n := len(like); n > 0 && len(rest) > n && rest[n] == '"' && string(rest[:n]) == like {
		tag, rest = like, rest[n+1:]
	} else if tag, rest, ok = quickText(rest); !ok {
		return "", nil, false
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(`,"data":`)); !ok {
		return "", nil, false
	}
	data, ok = bytes.CutSuffix(rest, []byte("}"))
	return tag, data, ok
}

// quickText parses a JSON string up to its closing quote, if it has no escapes.
func quickText(b []byte) (s string, rest []byte, ok bool) {
	end := bytes.IndexByte(b, '"')
	if end < 0 || bytes.IndexByte(b[:end], '\\') >= 0 {
		return "", nil, false
	}
	return strings.ToValidUTF8(string(b[:end]), "\ufffd"), b[end+1:], true
}
