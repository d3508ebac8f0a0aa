package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
)

// nameLog is the file beside the journal with the contents of names, so that a start reads this
// file, not the journal, to recognise duplicates. It is a sequence of chunks, each with its
// length and checksum; the first damaged or incomplete one ends it. A chunk tells up to which
// sequence of the journal the chunks so far are complete: names after the last one are read
// from the journal. So nothing depends on the file being whole, nor on when it reaches the
// disk.
type nameLog struct {
	path    string
	created time.Time // creation time of the stream: names of another stream are invalid
	file    *os.File  // nil after a failure: the next write begins a new file
	size    int64     // of file
	fresh   int64     // its size when it was created
	upto    uint64    // the latest value written
}

const (
	nameLogMagic = "brine names 1\n"
	// maxChunk is larger than any chunk; it limits what a damaged length costs.
	maxChunk = 16 << 20
	// nameLogSpare is how many bytes beyond twice its first size a file may grow before it is
	// rewritten.
	nameLogSpare = 1 << 20
	// namesEvery is the pause between two writes. uptoEvery is how many messages may be stored
	// before the file records that there were no names among them, so it limits what a start
	// reads from the journal.
	namesEvery = 200 * time.Millisecond
	uptoEvery  = 8192
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// named is a name and what is known of it.
type named struct {
	sender string
	key    key
	reach  reach
}

// shelved is names that were stored no later than a certain time.
type shelved struct {
	time time.Time
	list []named
}

// appendChunk appends a chunk with these names.
func appendChunk(b []byte, upto uint64, now time.Time, list []named) []byte {
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	begin := len(b)
	b = binary.AppendUvarint(b, upto)
	b = binary.AppendVarint(b, now.UnixMilli())
	sender := ""
	for i, n := range list {
		if i > 0 && n.sender == sender {
			b = append(b, 0)
		} else {
			b = binary.AppendUvarint(b, uint64(len(n.sender))+1)
			b = append(b, n.sender...)
			sender = n.sender
		}
		b = append(b, n.key[:]...)
		b = binary.AppendUvarint(b, n.reach.end)
		b = binary.AppendUvarint(b, uint64(n.reach.n))
	}
	binary.LittleEndian.PutUint32(b[begin-8:], uint32(len(b)-begin))
	binary.LittleEndian.PutUint32(b[begin-4:], crc32.Checksum(b[begin:], crcTable))
	return b
}

var errTorn = errors.New("a chunk is incomplete")

// readChunk takes the first chunk from b.
func readChunk(b []byte, f func(now time.Time, n named)) (upto uint64, rest []byte, err error) {
	if len(b) < 8 {
		return 0, nil, errTorn
	}
	size := binary.LittleEndian.Uint32(b)
	sum := binary.LittleEndian.Uint32(b[4:])
	if b = b[8:]; size > maxChunk || int(size) > len(b) {
		return 0, nil, errTorn
	}
	body, rest := b[:size], b[size:]
	if crc32.Checksum(body, crcTable) != sum {
		return 0, nil, errTorn
	}
	r := bytes.NewReader(body)
	upto, err = binary.ReadUvarint(r)
	if err != nil {
		return 0, nil, err
	}
	milli, err := binary.ReadVarint(r)
	if err != nil {
		return 0, nil, err
	}
	n := named{}
	for r.Len() > 0 {
		if n, err = readNamed(r, n.sender); err != nil {
			return 0, nil, err
		}
		f(time.UnixMilli(milli), n)
	}
	return upto, rest, nil
}

func readNamed(r *bytes.Reader, sender string) (n named, err error) {
	n.sender = sender
	length, err := binary.ReadUvarint(r)
	if err != nil || length > uint64(r.Len()) {
		return n, errTorn
	}
	if length > 0 {
		text := make([]byte, length-1)
		if _, err := io.ReadFull(r, text); err != nil {
			return n, err
		}
		n.sender = string(text)
	}
	if _, err := io.ReadFull(r, n.key[:]); err != nil {
		return n, err
	}
	if n.reach.end, err = binary.ReadUvarint(r); err != nil {
		return n, err
	}
	count, err := binary.ReadUvarint(r)
	n.reach.n = int32(count)
	return n, err
}

// load calls f for the content of the file, the oldest first, and returns up to which sequence
// of the journal it is complete: 0 if there is no file, or it belongs to another journal.
func (l *nameLog) load(f func(now time.Time, n named)) (upto uint64, err error) {
	b, err := os.ReadFile(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	head := l.header()
	if !bytes.HasPrefix(b, head) {
		return 0, nil
	}
	for b = b[len(head):]; len(b) > 0; {
		to, rest, err := readChunk(b, f)
		if err != nil {
			break // what follows is read from the journal
		}
		upto, b = to, rest
	}
	return upto, nil
}

func (l *nameLog) header() []byte {
	return binary.LittleEndian.AppendUint64([]byte(nameLogMagic), uint64(l.created.UnixNano()))
}

// grown reports whether most of the file is outdated.
func (l *nameLog) grown() bool { return l.file == nil || l.size > 2*l.fresh+nameLogSpare }

// add writes one more chunk.
func (l *nameLog) add(upto uint64, list []named) error {
	b := appendChunk(nil, upto, time.Now(), list)
	if _, err := l.file.WriteAt(b, l.size); err != nil {
		l.close()
		return err
	}
	l.size += int64(len(b))
	l.upto = upto
	return nil
}

// begin writes a new file with all known names.
func (l *nameLog) begin(upto uint64, all []shelved) error {
	l.close()
	b := l.header()
	for _, s := range all {
		for list := range slices.Chunk(s.list, 1<<16) {
			b = appendChunk(b, 0, s.time, list)
		}
	}
	b = appendChunk(b, upto, time.Now(), nil)
	if err := atomicfile.Write(l.path, b, 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	l.file, l.size, l.fresh, l.upto = f, int64(len(b)), int64(len(b)), upto
	return nil
}

func (l *nameLog) close() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

// openNames loads the names that were stored before the start: from the file and, for what was
// stored after it, from the journal, which ends with the sequence last. Without a path there is no file.
func (j *Journal) openNames(ctx context.Context, path string, lost []Gap, last uint64) error {
	info := j.stream.CachedInfo()
	state := info.State
	if state.LastSeq < last { // the server that told the state lacked the newest messages
		state.LastSeq, state.LastTime, state.Msgs = last, time.Now(), max(state.Msgs, 1)
	}
	from := uint64(0)
	if path != "" {
		j.log = &nameLog{path: path, created: info.Created}
		now := time.Now()
		upto, err := j.log.load(func(then time.Time, n named) {
			if n.reach = n.reach.without(lost); n.reach.n > 0 {
				j.names.recall(now, then, n)
			}
		})
		switch {
		case err != nil:
			return fmt.Errorf("read the names of what is stored: %w", err)
		case upto > state.LastSeq || j.copies > 0 && last > 0 && upto >= last:
			// The end of the journal was lost in a power cut. Where it has copies, a start has stored the message at last
			// itself, and no file of an earlier one can know of it.
			j.names = newNames()
		default:
			from = upto
		}
	}
	ctx, cancel := context.WithTimeout(ctx, learnTime)
	defer cancel()
	return j.learn(ctx, from, state)
}

// keepNames writes the file until Close, or the end of the connection.
func (j *Journal) keepNames() {
	defer j.log.close()
	for {
		select {
		case <-j.writer.grown:
		case <-j.closed:
			return
		case <-j.stop:
			j.writeNames(true)
			return
		}
		pause := time.NewTimer(namesEvery)
		select {
		case <-pause.C:
			j.writeNames(false)
		case <-j.closed:
		case <-j.stop:
		}
		pause.Stop()
	}
}

// writeNames records what is new. If writing fails, for example because the disk is full, all
// names are written the next time that something is stored.
func (j *Journal) writeNames(end bool) {
	upto, list, ok := j.names.takeFresh(j.writer.stored())
	if ok && !j.log.grown() {
		if len(list) == 0 && upto < j.log.upto+uptoEvery && !(end && upto > j.log.upto) {
			return
		}
		if j.log.add(upto, list) == nil {
			return
		}
	}
	upto, all := j.names.all(j.writer.stored())
	if err := j.log.begin(upto, all); err != nil {
		j.names.spill()
	}
}
