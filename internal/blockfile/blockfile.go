// Package blockfile checks the block files of the embedded server's store on disk: before the
// server opens them, if they may be damaged, and on request.
//
// If the server finds a damaged record, it truncates the block there: all readable records after it
// are lost, without a report. This package replaces a damaged record with an erased one of the same
// length, so that the server reads on after it; it keeps a copy of the original block and reports
// what was lost. It does not interpret messages.
package blockfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/posix"
)

// Lost is an unreadable part of a stream.
type Lost struct {
	Stream string    `json:"stream"`
	From   uint64    `json:"from"` // sequences that may be lost; no others are
	To     uint64    `json:"to"`   // 0 if unknown: it was the end of the stream
	After  time.Time `json:"after,omitzero"`
	Before time.Time `json:"before,omitzero"` // when the messages before and after were stored
	Block  string    `json:"block"`           // the file
	Offset int64     `json:"offset"`
	Bytes  int64     `json:"bytes"`
	Copy   string    `json:"copy,omitempty"` // of the original block
}

// Map returns the same data as a map.
func (l Lost) Map() map[string]any {
	m := map[string]any{
		"stream": l.Stream, "from": int64(l.From), "to": int64(l.To), "block": l.Block, "offset": l.Offset, "bytes": l.Bytes,
	}
	for key, at := range map[string]time.Time{"after": l.After, "before": l.Before} {
		if !at.IsZero() {
			m[key] = at.Format(time.RFC3339Nano)
		}
	}
	if l.Copy != "" {
		m["copy"] = l.Copy
	}
	return m
}

// Report is the result of a check.
type Report struct {
	Blocks  int
	Read    int // blocks that were read; the others are known to be unchanged
	Bytes   int64
	Records uint64
	Lost    []Lost
	Last    map[string]uint64 // the last sequence of each stream
	Torn    map[string]bool   // whether the end of the stream is damaged

	streams map[string]*learned // of a Checker with learn
	window  []byte              // buffer for the block that is read
}

// learned is what was found in a stream.
type learned struct {
	msgs   string // the directory of its blocks
	blocks []numbered
	unsure bool // the blocks do not contain everything about it
}

// Checker checks a store.
type Checker struct {
	Dir    string // of the store
	Repair bool   // replace damaged records with erased ones; otherwise they are only reported
	// Running means that a server has the store open: the newest block of each stream is checked,
	// but not repaired, since the server writes to it.
	Running bool
	// Pause is called between two blocks, so that a background check does not slow others; an error
	// ends the check. It may be nil.
	Pause func() error

	newestOnly bool // check only the newest block of each stream, unless that has an error
	known      bool // do not read blocks that match their summaries
	learn      bool // collect and store summaries

	found func([]Lost) error // called before a block is repaired; its error leaves the block as it is. It may be nil

	sync func(path string) error // nil is posix.SyncPath; tests use failing disks
}

// copies is the directory for original blocks, beside the store's own.
const (
	copies    = "damaged"
	maxCopies = 16
)

// Check checks all streams.
func (c Checker) Check() (*Report, error) {
	r := &Report{Last: map[string]uint64{}, Torn: map[string]bool{}, streams: map[string]*learned{}}
	dirs, err := streamDirs(c.Dir)
	if err != nil {
		return r, fmt.Errorf("check the store: %w", err)
	}
	for _, dir := range dirs {
		if err := c.stream(dir, r); err != nil {
			return r, fmt.Errorf("check the store: %w", err)
		}
	}
	r.window = nil
	return r, nil
}

func (c Checker) stream(dir string, r *Report) error {
	name := filepath.Base(filepath.Dir(dir))
	blocks, err := blocksOf(dir)
	if err != nil {
		return err
	}
	if c.newestOnly {
		blocks = blocks[max(0, len(blocks)-2):] // the newest may have no message yet
	}
	lost := len(r.Lost)
	if c.learn {
		r.streams[name] = &learned{msgs: dir}
		if err := dropSummaries(c.Dir, name, blocks); err != nil {
			return err
		}
	}
	for i, n := range blocks {
		b := &block{checker: c, stream: name, dir: dir, number: n, newest: i == len(blocks)-1, report: r}
		if err := b.look(); err != nil {
			return err
		}
		r.Blocks++
		if c.Pause != nil {
			if err := c.Pause(); err != nil {
				return err
			}
		}
	}
	if len(r.Lost) > lost {
		r.unsure(name)
	}
	switch {
	case !c.Repair || c.Running:
		return nil
	case len(r.Lost) > lost, c.learn && !c.known: // the index describes the blocks before the repair
		return removeIndex(dir)
	}
	return nil
}

// blocksOf returns the numbers of a stream's blocks in order.
func blocksOf(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var blocks []int
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), ".blk"); ok {
			if n, err := strconv.Atoi(base); err == nil {
				blocks = append(blocks, n)
			}
		}
	}
	slices.Sort(blocks)
	return blocks, nil
}

func blockPath(dir string, n int) string { return filepath.Join(dir, strconv.Itoa(n)+".blk") }

// block is the block that is being checked.
type block struct {
	checker Checker
	stream  string
	dir     string
	number  int
	newest  bool // it is the one that the server writes to
	report  *Report

	sums  sums
	size  int
	end   [sumSize]byte // the checksum of the last record that was read
	text  []byte        // the whole block, if it was not read record by record
	found []damage
	last  record // the latest message
	tally *tally
	torn  int // where an incomplete write begins, 0 for none: an empty block has none
}

// damage is a part of a block without a readable record.
type damage struct {
	at, end   int
	seq       uint64 // of the record that replaces it
	from, to  uint64 // the sequences that it may have contained
	after     time.Time
	before    time.Time
	discarded bool // it is at the end and is truncated
}

// look skips a block that is known, and reads any other.
func (b *block) look() error {
	if !b.checker.learn {
		return b.check()
	}
	path := blockPath(b.dir, b.number)
	now := time.Now()
	id, err := identify(path)
	if errors.Is(err, fs.ErrNotExist) {
		b.report.unsure(b.stream)
		return nil // it was removed meanwhile
	}
	if err != nil {
		return err
	}
	if s, ok := readSummary(b.checker.Dir, b.stream, b.number, id); ok && b.checker.known && !b.newest {
		b.passOver(s)
		b.report.learn(b.stream, numbered{b.number, s})
		return nil
	}
	b.tally = newTally(nil)
	if err := b.check(); err != nil || b.newest && b.checker.Running {
		return err
	}
	return b.note(path, id, now)
}

// passOver is walk for a block that need not be read.
func (b *block) passOver(s *summary) {
	b.last = record{seq: b.report.Last[b.stream]}
	for _, at := range []span{s.head, s.tail} {
		if at.seq > 0 {
			b.pass(record{seq: at.seq, time: time.Unix(0, at.at).UTC(), kind: message})
		}
	}
	b.report.Bytes += int64(s.id.size)
	b.report.Last[b.stream] = max(b.report.Last[b.stream], b.last.seq, s.high)
}

// note collects the summary of a block that was read, and stores it if a later change of the block
// would be noticed.
func (b *block) note(path string, id identity, when time.Time) error {
	if len(b.found) > 0 || b.size == 0 {
		b.report.unsure(b.stream)
		return nil
	}
	s := b.tally.end()
	s.sum = b.end
	after, err := identify(path)
	if err != nil {
		return err
	}
	s.id = after
	b.report.learn(b.stream, numbered{b.number, s})
	if after != id || uint64(b.size) != id.size || !id.stable(when) || b.newest {
		return nil
	}
	return s.write(b.checker.Dir, b.stream, b.number)
}

func (r *Report) learn(stream string, n numbered) {
	r.streams[stream].blocks = append(r.streams[stream].blocks, n)
}

// unsure records that the server must read the blocks of that stream itself.
func (r *Report) unsure(stream string) {
	if l := r.streams[stream]; l != nil {
		l.unsure = true
	}
}

// index writes the indexes of the streams, which no server has open.
func (r *Report) index(dir string) error {
	for stream, l := range r.streams {
		if l.unsure {
			continue
		}
		err := applyRemovals(l.msgs, stream, l.blocks, func(n numbered) error {
			if n.number == l.blocks[len(l.blocks)-1].number {
				return nil
			}
			return n.write(dir, stream, n.number)
		})
		if err == nil {
			err = writeIndex(l.msgs, stream, l.blocks)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *block) check() (err error) {
	path := blockPath(b.dir, b.number)
	if b.sums, err = newSums(b.stream, b.number); err != nil {
		return err
	}
	whole, err := b.skim(path)
	if err == nil && !whole {
		err = b.read(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		b.report.unsure(b.stream)
		return nil // it was removed meanwhile
	}
	if err != nil {
		return err
	}
	b.report.Read++
	b.report.Bytes += int64(b.size)
	b.report.Last[b.stream] = max(b.report.Last[b.stream], b.last.seq)
	return b.handle(path)
}

// read examines a block that has an error.
func (b *block) read(path string) (err error) {
	if b.text, err = os.ReadFile(path); err != nil {
		return err
	}
	before := b.report.Last[b.stream]
	b.walk()
	if len(b.found) > 0 && b.checker.Running { // or it was written while it was read
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, b.text) {
			b.report.Last[b.stream] = before
			b.text, b.found = again, nil
			b.walk()
		}
	}
	b.size = len(b.text)
	return nil
}

// skim checks a block record by record, without loading all of it, as long as it finds no error. If
// it returns false, it has recorded nothing.
func (b *block) skim(path string) (whole bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	before, records := b.report.Last[b.stream], uint64(0)
	b.begin()
	b.report.window, err = eachRecord(f, b.sums, b.report.window, func(r record, text []byte) {
		records++
		b.size += r.size
		b.take(r, text)
	})
	if errors.Is(err, errDamaged) {
		b.report.Last[b.stream], b.size = before, 0
		return false, nil
	}
	b.report.Records += records
	return err == nil, err
}

// begin resets the state before the first record.
func (b *block) begin() {
	b.last = record{seq: b.report.Last[b.stream]}
	if b.tally != nil {
		b.tally = newTally(nil)
	}
}

// take records a readable record; text begins with it.
func (b *block) take(r record, text []byte) {
	b.pass(r)
	copy(b.end[:], text[r.size-sumSize:r.size])
	if b.tally != nil {
		b.tally.add(r, subjectOf(text))
	}
}

// walk examines all records.
func (b *block) walk() {
	b.begin()
	records := uint64(0)
	for at := 0; at < len(b.text); {
		r, ok := b.sums.read(b.text[at:])
		if !ok {
			at = b.damaged(at)
			continue
		}
		records++
		b.take(r, b.text[at:])
		at += r.size
	}
	b.report.Records += records
}

// pass records a readable record.
func (b *block) pass(r record) {
	switch {
	case r.kind == tombstone:
		b.report.Last[b.stream] = max(b.report.Last[b.stream], r.seq)
		return
	case r.seq <= b.last.seq:
		return
	}
	b.last = r
	if n := len(b.found); n > 0 && b.found[n-1].to == 0 {
		b.found[n-1].to, b.found[n-1].before = r.seq-1, r.time
		return
	}
	if n := len(b.report.Lost); n > 0 { // the end of the previous block
		if l := &b.report.Lost[n-1]; l.Stream == b.stream && l.To == 0 {
			l.To, l.Before = r.seq-1, r.time
		}
	}
}

// damaged records the unreadable part at that offset, and returns where it ends.
func (b *block) damaged(at int) (end int) {
	d := damage{at: at, end: len(b.text), from: b.last.seq + 1, seq: b.last.seq + 1, after: b.last.time}
	if next, ok := b.next(at); ok {
		d.end = next
	}
	if d.end == len(b.text) && (b.newest || d.end-d.at < leastSize) {
		d.discarded = true // nothing readable follows
	}
	if d.discarded && b.newest && b.onlyTorn(at) {
		b.torn = at
		return d.end // an incomplete write that was never acknowledged, unless the power also failed
	}
	b.found = append(b.found, d)
	return d.end
}

// next returns where the next readable record begins: preferably where the damaged record says that
// it ends.
func (b *block) next(at int) (int, bool) {
	if r, _, _, ok := frame(b.text[at:]); ok {
		if _, ok := b.sums.read(b.text[at+r.size:]); ok {
			return at + r.size, true
		}
	}
	for next := at + leastSize; next+leastSize <= len(b.text); next++ {
		if r, ok := b.sums.read(b.text[next:]); ok && (r.kind != message || r.seq > b.last.seq) {
			return next, true
		}
	}
	return 0, false
}

// onlyTorn reports whether the rest of the block is the beginning of the next record.
func (b *block) onlyTorn(at int) bool {
	rest := b.text[at:]
	if len(rest) < headSize {
		return true
	}
	size := int(binary.LittleEndian.Uint32(rest) &^ headersBit)
	seq := binary.LittleEndian.Uint64(rest[4:])
	return size > len(rest) && size <= mostSize && (seq&(erasedBit|tombBit) != 0 || seq == b.last.seq+1)
}

// handle reports the damage and repairs it.
func (b *block) handle(path string) error {
	if len(b.found) == 0 {
		return b.cutTorn(path)
	}
	kept := ""
	if b.checker.Repair && !(b.checker.Running && b.newest) {
		if b.checker.found != nil {
			if err := b.checker.found(b.lost(path, "")); err != nil {
				return err
			}
		}
		var err error
		if kept, err = b.keep(path); err != nil {
			return err
		}
		if !b.checker.Running { // it describes the block as it was
			if err := removeIndex(b.dir); err != nil {
				return err
			}
		}
		if err := b.repair(path); err != nil {
			return err
		}
	}
	b.report.Lost = append(b.report.Lost, b.lost(path, kept)...)
	for _, d := range b.found {
		if d.discarded && b.newest {
			b.report.Torn[b.stream] = true
		}
	}
	return nil
}

// lost returns what is reported of the damage; kept is the copy of the block.
func (b *block) lost(path, kept string) (list []Lost) {
	for _, d := range b.found {
		list = append(list, Lost{
			Stream: b.stream, From: d.from, To: d.to, After: d.after, Before: d.before,
			Block: path, Offset: int64(d.at), Bytes: int64(d.end - d.at), Copy: kept,
		})
	}
	return list
}

// cutTorn removes the beginning of an unfinished record. Otherwise the server would append after it
// if an index says that the block is complete.
func (b *block) cutTorn(path string) error {
	if b.torn == 0 || !b.checker.Repair || b.checker.Running {
		return nil
	}
	return os.Truncate(path, int64(b.torn))
}

// keep copies the original block; the oldest copies are removed. The copy is on the disk when it returns: the original is
// overwritten next.
func (b *block) keep(path string) (string, error) {
	dir := filepath.Join(b.checker.Dir, copies)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.blk"))
	if err != nil {
		return "", err
	}
	for ; len(old) >= maxCopies; old = old[1:] {
		if err := os.Remove(old[0]); err != nil {
			return "", err
		}
	}
	copied := filepath.Join(dir, fmt.Sprintf("%s.%s.%s", time.Now().UTC().Format("20060102T150405.000000000"), b.stream, filepath.Base(path)))
	if err := os.WriteFile(copied, b.text, 0o600); err != nil {
		return "", err
	}
	sync := b.checker.sync
	if sync == nil {
		sync = posix.SyncPath
	}
	for _, path := range []string{copied, dir, b.checker.Dir} {
		if err := sync(path); err != nil {
			return "", fmt.Errorf("sync the copy of a damaged part of the store: %w", err)
		}
	}
	return copied, nil
}

// repair writes an erased record over each damage. Its sequence is the last one that may be lost:
// from that, the server knows that those before it are gone.
func (b *block) repair(path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, d := range b.found {
		if d.discarded {
			err = f.Truncate(int64(d.at))
		} else {
			_, err = f.WriteAt(b.sums.blank(d.end-d.at, max(d.seq, d.to), erasedBit, d.after), int64(d.at))
		}
		if err != nil {
			return err
		}
	}
	return f.Sync()
}

// SkipTo makes the stream continue after that sequence. The store must be closed. It adds a block
// with a tombstone of a removed message, as the server itself does when it remembers more than it
// finds.
func SkipTo(dir, stream string, seq uint64) error {
	msgs, err := folderOf(dir, stream)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	blocks, err := blocksOf(msgs)
	if err != nil {
		return err
	}
	n := 1
	if len(blocks) > 0 {
		n = blocks[len(blocks)-1] + 1
	}
	s, err := newSums(stream, n)
	if err != nil {
		return err
	}
	path := blockPath(msgs, n)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(s.blank(leastSize, seq, tombBit, time.Now()))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path)) // a part of it would be the newest block
	}
	return posix.SyncPath(msgs)
}
