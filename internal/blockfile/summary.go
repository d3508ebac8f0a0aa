package blockfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server/avl"

	"github.com/brinebus/brine/internal/posix"
)

// summary is what a start needs to know of a block. It is stored beside the store, so that the
// block need not be read again as long as the file is the same.
type summary struct {
	id   identity
	sum  [sumSize]byte // of the newest record; the server compares it with the end of the block
	head span          // of the first record
	tail span          // of the last one
	high uint64        // the highest sequence in its tombstones

	messages uint64
	bytes    uint64
	first    span              // the first message
	dead     avl.SequenceSet   // sequences after first that have no message
	removals []uint64          // sequences of removed messages, also in other blocks
	subjects map[string]uint64 // number of messages of each
}

// span is a sequence in a stream and the time when it was assigned.
type span struct {
	seq uint64
	at  int64
}

// identity shows whether a file is unchanged. Any change of a file changes its ctime, which no
// program can set back.
type identity struct {
	size, inode  uint64
	mtime, ctime int64
}

func identify(path string) (identity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, err
	}
	s, err := posix.StatOf(info)
	if errors.Is(err, errors.ErrUnsupported) {
		return identity{size: uint64(info.Size()), mtime: info.ModTime().UnixNano()}, nil
	}
	return identity{uint64(info.Size()), s.Inode, info.ModTime().UnixNano(), s.Changed}, err
}

// stableTime is how old the last change of a file must be before its identity is reliable: the
// kernel's clock for files ticks every few milliseconds, and two changes within one tick look the
// same.
const stableTime = 2 * time.Second

func (i identity) stable(now time.Time) bool {
	limit := now.Add(-stableTime).UnixNano()
	return i.mtime < limit && i.ctime < limit
}

// tally builds a summary from the records of a block, without the messages for which gone is true.
// It keeps no data for each message: a block has tens of thousands.
type tally struct {
	gone    func(seq uint64) bool // nil means none
	next    uint64                // the sequence after the latest message
	numbers map[string]int        // of the subjects, in counts
	counts  []uint64
	summary summary
}

func newTally(gone func(seq uint64) bool) *tally {
	return &tally{gone: gone, numbers: map[string]int{}}
}

// add counts a readable record, as the server does when it reads a block without an index.
func (t *tally) add(r record, subject []byte) {
	s := &t.summary
	at := span{r.seq, r.time.UnixNano()}
	switch {
	case r.kind == tombstone:
		s.removals = append(s.removals, r.seq)
		s.high = max(s.high, r.seq)
		return
	case r.seq <= s.tail.seq:
		return
	}
	if s.head.seq == 0 {
		s.head = at
	}
	s.tail = at
	if r.kind != message || t.gone != nil && t.gone(r.seq) {
		return
	}
	if s.messages == 0 {
		s.first, t.next = at, r.seq
	}
	t.skip(r.seq)
	t.next++
	s.messages++
	s.bytes += uint64(r.size)
	n, ok := t.numbers[string(subject)]
	if !ok {
		n = len(t.counts)
		t.counts = append(t.counts, 0)
		t.numbers[string(subject)] = n
	}
	t.counts[n]++
}

// skip records that there is no message before seq.
func (t *tally) skip(seq uint64) {
	for ; t.next < seq; t.next++ {
		t.summary.dead.Insert(t.next)
	}
}

// end returns the summary. Nothing may be added after that.
func (t *tally) end() *summary {
	s := &t.summary
	if s.messages > 0 {
		t.skip(s.tail.seq + 1)
	}
	s.subjects = make(map[string]uint64, len(t.counts))
	for subject, n := range t.numbers {
		s.subjects[subject] = t.counts[n]
	}
	return s
}

// has reports whether the message exists, as far as the summary knows.
func (s *summary) has(seq uint64) bool {
	return s.messages > 0 && seq >= s.first.seq && seq <= s.tail.seq && !s.dead.Exists(seq)
}

// summaries is their directory, beside the store's own.
const summaries = "summaries"

func summaryPath(dir, stream string, block int) string {
	return filepath.Join(dir, summaries, stream, strconv.Itoa(block))
}

const summaryForm = 1 // the version of their file format

// write stores the summary. It is valid until the next boot: nobody knows what a power failure
// leaves of the block.
func (s *summary) write(dir, stream string, block int) error {
	b := []byte{summaryForm}
	b = appendText(b, []byte(boot()))
	for _, v := range []uint64{s.id.size, s.id.inode, s.head.seq, s.tail.seq, s.high, s.messages, s.bytes, s.first.seq} {
		b = binary.AppendUvarint(b, v)
	}
	for _, v := range []int64{s.id.mtime, s.id.ctime, s.head.at, s.tail.at, s.first.at} {
		b = binary.AppendVarint(b, v)
	}
	b = append(b, s.sum[:]...)
	b = appendText(b, s.dead.Encode(nil))
	b = binary.AppendUvarint(b, uint64(len(s.removals)))
	for _, seq := range s.removals {
		b = binary.AppendUvarint(b, seq)
	}
	b = binary.AppendUvarint(b, uint64(len(s.subjects)))
	for _, subject := range slices.Sorted(maps.Keys(s.subjects)) {
		b = appendText(b, []byte(subject))
		b = binary.AppendUvarint(b, s.subjects[subject])
	}
	sums, err := newSums(stream, block)
	if err != nil {
		return err
	}
	path := summaryPath(dir, stream, block)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return replaceFile(path, sums.of(nil, nil, b, b))
}

// replaceFile writes a file atomically, but not safe against a power failure.
func replaceFile(path string, b []byte) error {
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

func appendText(b, text []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// readSummary returns the stored summary of a block, if the file is the one that it was made from.
func readSummary(dir, stream string, block int, id identity) (*summary, bool) {
	b, err := os.ReadFile(summaryPath(dir, stream, block))
	if err != nil || len(b) < 1+sumSize || b[0] != summaryForm {
		return nil, false
	}
	sums, err := newSums(stream, block)
	if err != nil || !bytes.Equal(sums.of(nil, nil, b[:len(b)-sumSize], nil), b[len(b)-sumSize:]) {
		return nil, false
	}
	d := decoder{b: b[1 : len(b)-sumSize]}
	s := &summary{}
	if now := boot(); now == unknownBoot || string(d.text()) != now {
		return nil, false
	}
	for _, v := range []*uint64{&s.id.size, &s.id.inode, &s.head.seq, &s.tail.seq, &s.high, &s.messages, &s.bytes, &s.first.seq} {
		*v = d.uint()
	}
	for _, v := range []*int64{&s.id.mtime, &s.id.ctime, &s.head.at, &s.tail.at, &s.first.at} {
		*v = d.int()
	}
	copy(s.sum[:], d.take(sumSize))
	if dead, _, err := avl.Decode(d.text()); err == nil {
		s.dead = *dead
	} else {
		return nil, false
	}
	for range d.count() {
		s.removals = append(s.removals, d.uint())
	}
	n := d.count()
	s.subjects = make(map[string]uint64, n)
	for range n {
		subject := string(d.text())
		s.subjects[subject] = d.uint()
	}
	return s, !d.failed && len(d.b) == 0 && s.id == id
}

// decoder reads what write wrote.
type decoder struct {
	b      []byte
	failed bool
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	d.take(n)
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	d.take(n)
	return v
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) || d.failed {
		d.failed, d.b = true, nil
		return nil
	}
	taken := d.b[:n]
	d.b = d.b[n:]
	return taken
}

// count reads the number of items that follow, each of at least one byte.
func (d *decoder) count() uint64 {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.failed, d.b = true, nil
		return 0
	}
	return n
}

func (d *decoder) text() []byte { return d.take(int(d.count())) }

// dropSummaries removes those of deleted blocks.
func dropSummaries(dir, stream string, blocks []int) error {
	entries, err := os.ReadDir(filepath.Join(dir, summaries, stream))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		n, bad := strconv.Atoi(e.Name())
		if _, found := slices.BinarySearch(blocks, n); bad == nil && found {
			continue
		}
		err = errors.Join(err, os.Remove(filepath.Join(dir, summaries, stream, e.Name())))
	}
	return err
}
