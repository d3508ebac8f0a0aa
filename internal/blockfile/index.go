package blockfile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The format of index.db, as nats-server 2.11 to 2.15 writes it and reads it at its start. The
// server uses the file only if the newest block ends as the file says; otherwise it reads all
// blocks. TestTheServersOwnIndex checks this with the server that is linked.
const (
	indexName  = "index.db"
	indexMagic = 11
	indexForm  = 4
)

// numbered is a block of a stream with its summary.
type numbered struct {
	number int
	*summary
}

// subjectSpan is where the messages of a subject are.
type subjectSpan struct {
	total       uint64
	first, last int // blocks
}

// writeIndex writes the index of a stream that is not open, so that the server need not read its
// blocks. It writes none if the server's own index is still valid, and none if anything about the
// stream is unusual: then the server reads the blocks.
func writeIndex(msgs, stream string, blocks []numbered) error {
	path := filepath.Join(msgs, indexName)
	if len(blocks) == 0 || !indexable(msgs) {
		return nil
	}
	if b, err := os.ReadFile(path); err == nil && endsAt(b, blocks[len(blocks)-1].sum) {
		return nil
	}
	b, ok := encodeIndex(blocks)
	if !ok {
		return nil
	}
	sums, err := streamSums(stream)
	if err != nil {
		return err
	}
	return replaceFile(path, sums.of(nil, nil, b, b))
}

// endsAt reports whether the index was written when the newest record had that checksum.
func endsAt(index []byte, sum [sumSize]byte) bool {
	at := len(index) - 2*sumSize
	return at >= 0 && bytes.Equal(index[at:at+sumSize], sum[:])
}

// indexable reports whether the index of the stream contains only what encodeIndex writes.
func indexable(msgs string) bool {
	var meta struct {
		Name          string            `json:"name"`
		Subjects      []string          `json:"subjects"`
		Storage       string            `json:"storage"`
		Compression   string            `json:"compression"`
		Mirror        json.RawMessage   `json:"mirror"`
		Sources       []json.RawMessage `json:"sources"`
		AllowTTL      bool              `json:"allow_msg_ttl"`
		AllowSchedule bool              `json:"allow_msg_schedules"`
	}
	dir := filepath.Dir(msgs)
	b, err := os.ReadFile(filepath.Join(dir, "meta.inf"))
	if err != nil || json.Unmarshal(b, &meta) != nil {
		return false
	}
	if meta.Name != filepath.Base(dir) || len(meta.Subjects) == 0 || meta.Storage != "file" || meta.AllowTTL || meta.AllowSchedule ||
		len(meta.Mirror) > 0 || len(meta.Sources) > 0 || meta.Compression != "none" && meta.Compression != "" {
		return false
	}
	return onlyKnown(dir, "meta.inf", "meta.sum", "msgs", "obs") && onlyKnown(msgs, indexName, ".blk", ".tmp", ".new")
}

// onlyKnown reports whether all names in dir have one of these endings. Only the server knows the
// meaning of other files, such as keys, or a purge that was interrupted by a kill.
func onlyKnown(dir string, ends ...string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return !slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(e.Name(), end) })
	})
}

// encodeIndex returns false if a block is empty or out of order.
func encodeIndex(blocks []numbered) ([]byte, bool) {
	var messages, size uint64
	subjects := map[string]subjectSpan{}
	last := uint64(0)
	for _, b := range blocks {
		if b.messages == 0 || b.first.seq <= last || b.first.at == 0 {
			return nil, false
		}
		last = b.tail.seq
		messages, size = messages+b.messages, size+b.bytes
		for subject, n := range b.subjects {
			s, ok := subjects[subject]
			if !ok {
				s.first = b.number
			}
			s.total, s.last = s.total+n, b.number
			subjects[subject] = s
		}
	}
	first, newest := blocks[0].first, blocks[len(blocks)-1]
	out := []byte{indexMagic, indexForm}
	out = binary.AppendUvarint(out, messages)
	out = binary.AppendUvarint(out, size)
	out = binary.AppendUvarint(out, first.seq)
	out = binary.AppendVarint(out, first.at)
	out = binary.AppendUvarint(out, newest.tail.seq)
	out = binary.AppendVarint(out, newest.tail.at)
	out = binary.AppendUvarint(out, uint64(len(subjects)))
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		s := subjects[subject]
		out = appendText(out, []byte(subject))
		out = binary.AppendUvarint(out, s.total)
		out = binary.AppendUvarint(out, uint64(s.first))
		out = binary.AppendUvarint(out, uint64(s.last))
	}
	out = binary.AppendUvarint(out, uint64(len(blocks)))
	for _, b := range blocks {
		out = b.appendEntry(out, first.at)
	}
	out = binary.AppendUvarint(out, uint64(newest.number))
	return append(out, newest.sum[:]...), true
}

// appendEntry appends the index entry of one block; its times are relative to base.
func (n numbered) appendEntry(out []byte, base int64) []byte {
	out = binary.AppendUvarint(out, uint64(n.number))
	out = binary.AppendUvarint(out, n.bytes)
	out = binary.AppendUvarint(out, n.first.seq)
	out = binary.AppendVarint(out, n.first.at-base)
	out = binary.AppendUvarint(out, n.tail.seq)
	out = binary.AppendVarint(out, n.tail.at-base)
	dead := n.dead.Size()
	out = binary.AppendUvarint(out, uint64(dead))
	out = binary.AppendUvarint(out, 0) // messages with a time to live
	out = binary.AppendUvarint(out, 0) // and scheduled ones
	if dead > 0 {
		out = append(out, n.dead.Encode(nil)...)
	}
	return out
}

func removeIndex(msgs string) error {
	if err := os.Remove(filepath.Join(msgs, indexName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// applyRemovals removes from the summaries the messages that other blocks record as removed. It
// reads the affected blocks again, and calls changed for each.
func applyRemovals(msgs, stream string, blocks []numbered, changed func(numbered) error) error {
	var removals []uint64
	for _, b := range blocks {
		removals = append(removals, b.removals...)
	}
	slices.Sort(removals)
	for i, b := range blocks {
		from, _ := slices.BinarySearch(removals, b.first.seq)
		to, _ := slices.BinarySearch(removals, b.tail.seq+1)
		if from >= to || !slices.ContainsFunc(removals[from:to], b.has) {
			continue
		}
		s, err := b.without(msgs, stream, removals[from:to])
		if err != nil {
			return err
		}
		blocks[i].summary = s
		if err := changed(blocks[i]); err != nil {
			return err
		}
	}
	return nil
}

// errChanged is returned if a block has changed since its summary was made.
var errChanged = errors.New("the block was changed meanwhile")

// without reads the block again and returns its summary without the messages in removals, which are
// sorted, and without those missing in the present summary.
func (n numbered) without(msgs, stream string, removals []uint64) (*summary, error) {
	r := reader{gone: func(seq uint64) bool {
		_, gone := slices.BinarySearch(removals, seq)
		return gone || !n.has(seq)
	}}
	return r.summarise(blockPath(msgs, n.number), stream, n.number, n.id)
}

// reader reads blocks without damage.
type reader struct {
	gone   func(seq uint64) bool // messages that do not count; nil means none
	window []byte
}

// summarise reads a block if it is still the same file.
func (r *reader) summarise(path, stream string, number int, id identity) (*summary, error) {
	sums, err := newSums(stream, number)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := newTally(r.gone)
	r.window, err = eachRecord(f, sums, r.window, func(r record, text []byte) {
		copy(t.summary.sum[:], text[r.size-sumSize:r.size])
		t.add(r, subjectOf(text))
	})
	if err != nil {
		return nil, err
	}
	if after, err := identify(path); err != nil || after != id {
		return nil, errors.Join(errChanged, err)
	}
	s := t.end()
	s.id = id
	return s, nil
}
