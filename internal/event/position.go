package event

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/value"
)

// Position is how far a reader of several journals has read: a sequence for each journal, by its
// name.
type Position map[string]uint64

// MaxPosition is how many bytes the text of a position may have. The journals of former members stay, so their number
// has no limit that a position could have, too: this is space for 280 with the longest names, and for more than a
// thousand with usual ones. It also fits into a header of HTTP.
const MaxPosition = 24 << 10

// ReadPosition parses the text that String returns, such as m1-0a1b2c3d:4711,m2-9f8e7d6c:12.
func ReadPosition(text string) (Position, error) {
	if len(text) > MaxPosition {
		return nil, fmt.Errorf("%.80q is not a position: it has %d bytes, and at most %d are allowed", text, len(text), MaxPosition)
	}
	p := Position{}
	for _, part := range strings.Split(text, ",") {
		name, number, ok := strings.Cut(part, ":")
		seq, err := strconv.ParseUint(number, 10, 64)
		if !ok || name == "" || err != nil {
			return nil, fmt.Errorf("%.80q is not a position: NAME:SEQUENCE for each journal, with commas between", text)
		}
		if _, again := p[name]; again {
			return nil, fmt.Errorf("%.80q is not a position: it names the journal %.80q twice", text, name)
		}
		p[name] = seq
	}
	return p, nil
}

// ReadPositions is ReadPosition for a text that is empty if there is no journal.
func ReadPositions(text string) (Position, error) {
	if text == "" {
		return Position{}, nil
	}
	return ReadPosition(text)
}

// String returns the position as text, sorted by name.
func (p Position) String() string {
	parts := make([]string, 0, len(p))
	for _, name := range slices.Sorted(maps.Keys(p)) {
		parts = append(parts, name+":"+strconv.FormatUint(p[name], 10))
	}
	return strings.Join(parts, ",")
}

// CheckText reports as an error if text cannot be a stored event: a JSON object on one line. For
// our own journals the writer guarantees this; the journal of another master may contain anything,
// also extra lines for listeners.
func CheckText(text []byte) error {
	if len(text) < 2 || text[0] != '{' || text[len(text)-1] != '}' || bytes.ContainsAny(text, "\r\n") || !value.Valid(text) {
		return errors.New("it is not an event: an object of JSON on one line is wanted")
	}
	return nil
}

// Pass records that everything up to seq of that journal is done.
func (p Position) Pass(name string, seq uint64) { p[name] = max(p[name], seq) }

const masterKey = `,"master":"`

// AppendMirrored is AppendStored for an event from the journal of another master, with the name of
// that journal, which needs no escapes.
func AppendMirrored(b, stored []byte, master string, seq uint64) []byte {
	b = append(b, stored[:len(stored)-1]...)
	b = append(append(append(b, masterKey...), master...), '"')
	return append(appendSeq(b, seq), '}')
}

// MasterOf returns the name of the journal in a line that AppendMirrored wrote; "" if there is
// none.
func MasterOf(line []byte) string {
	at := bytes.LastIndex(line, []byte(seqKey))
	if at < 1 || line[at-1] != '"' {
		return ""
	}
	head := line[:at-1]
	begin := bytes.LastIndex(head, []byte(masterKey))
	if begin < 0 || bytes.IndexByte(head[begin+len(masterKey):], '"') >= 0 {
		return ""
	}
	return string(head[begin+len(masterKey):])
}

// NameMaster returns a line as AppendStored wrote it with the name of its journal, as
// AppendMirrored writes it. A line that has a name, or no sequence, stays as it is.
func NameMaster(line []byte, master string) []byte {
	at := bytes.LastIndex(line, []byte(seqKey))
	if at < 0 || SeqOf(line) == 0 || MasterOf(line) != "" {
		return line
	}
	named := append(make([]byte, 0, len(line)+len(masterKey)+len(master)+1), line[:at]...)
	named = append(append(append(named, masterKey...), master...), '"')
	return append(named, line[at:]...)
}

// CutMaster returns a line as AppendStored wrote it, and the name of the journal that
// AppendMirrored has added; the line itself and "" if there is none.
func CutMaster(line []byte) (plain []byte, master string) {
	if master = MasterOf(line); master == "" {
		return line, ""
	}
	end := bytes.LastIndex(line, []byte(seqKey))
	plain = append(make([]byte, 0, len(line)), line[:end-len(masterKey)-len(master)-1]...)
	return append(plain, line[end:]...), master
}

// stampEnd precedes the stamp at the end of the text of an event whose data has a _stamp.
const stampEnd = `"_stamp":"`

// StampOf returns the _stamp of a stored event, as text; "" if its data is not an object.
func StampOf(text []byte) string { return StampIn(bytes.TrimSuffix(text, []byte("}"))) }

// StampIn is StampOf for the data of a stored event.
func StampIn(data []byte) string {
	const end = `"}`
	n := len(data) - len(end) - len(StampLayout)
	if n < len(stampEnd) || !bytes.HasSuffix(data, []byte(end)) || string(data[n-len(stampEnd):n]) != stampEnd {
		return ""
	}
	return string(data[n : len(data)-len(end)])
}
