package blockfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/minio/highwayhash"
)

// The format of a record in a block, as the file store of nats-server 2.10 to 2.15 writes it:
// length, sequence, time, length of the subject; then subject, headers and data, and a checksum.
// TestBlocksWrittenByTheServerAreRead checks this with the server that is linked.
const (
	headSize  = 22
	sumSize   = 8
	leastSize = headSize + sumSize
	mostSize  = 32 << 20

	headersBit = 1 << 31 // of the length: there are headers
	erasedBit  = 1 << 63 // of the sequence: the message was erased
	tombBit    = 1 << 62 // of the sequence: it records that a message was removed
)

// record has the metadata of one record.
type record struct {
	size int
	seq  uint64
	time time.Time
	kind kind
}

type kind int

const (
	message kind = iota
	erased
	tombstone
)

// sums verifies the checksums of the records of one block. It is for one goroutine.
type sums struct {
	hash hash.Hash64
	last []byte // the last computed checksum
}

func newSums(stream string, block int) (sums, error) {
	return sumsFor(fmt.Sprintf("%s-%d", stream, block))
}

// streamSums is for the index of a stream.
func streamSums(stream string) (sums, error) { return sumsFor(stream) }

func sumsFor(name string) (sums, error) {
	key := sha256.Sum256([]byte(name))
	h, err := highwayhash.New64(key[:])
	return sums{h, make([]byte, 0, sumSize)}, err
}

// frame reads the head of the record at the beginning of b. ok is false if it is invalid.
func frame(b []byte) (r record, subject, body int, ok bool) {
	if len(b) < leastSize {
		return r, 0, 0, false
	}
	size := binary.LittleEndian.Uint32(b)
	subject = int(binary.LittleEndian.Uint16(b[20:]))
	body = subject
	if size&headersBit != 0 {
		body += 4
	}
	r.size = int(size &^ headersBit)
	if r.size < leastSize+body || r.size > len(b) || r.size > mostSize {
		return r, 0, 0, false
	}
	r.seq = binary.LittleEndian.Uint64(b[4:])
	switch {
	case r.seq&tombBit != 0:
		r.kind = tombstone
	case r.seq&erasedBit != 0 || r.seq == 0:
		r.kind = erased
	}
	r.seq &^= tombBit | erasedBit
	r.time = time.Unix(0, int64(binary.LittleEndian.Uint64(b[12:]))).UTC()
	return r, subject, body, true
}

// subjectOf returns the subject of the readable record at the beginning of b.
func subjectOf(b []byte) []byte {
	return b[headSize : headSize+int(binary.LittleEndian.Uint16(b[20:]))]
}

// read reads the record at the beginning of b; it returns false if there is no complete one.
func (s sums) read(b []byte) (record, bool) {
	r, subject, body, ok := frame(b)
	if !ok {
		return r, false
	}
	data := b[headSize : r.size-sumSize]
	return r, bytes.Equal(s.of(b[4:20], data[:subject], data[body:], s.last), b[r.size-sumSize:r.size])
}

func (s sums) of(head, subject, data, into []byte) []byte {
	s.hash.Reset()
	s.hash.Write(head)
	s.hash.Write(subject)
	s.hash.Write(data)
	return s.hash.Sum(into)
}

// blank returns a record without a message, of size bytes, at least leastSize. For the store it
// means that the message existed and was removed.
func (s sums) blank(size int, seq uint64, bit uint64, at time.Time) []byte {
	b := make([]byte, size)
	binary.LittleEndian.PutUint32(b, uint32(size))
	binary.LittleEndian.PutUint64(b[4:], seq|bit)
	if !at.IsZero() {
		binary.LittleEndian.PutUint64(b[12:], uint64(at.UnixNano()))
	}
	s.of(b[4:20], nil, b[headSize:size-sumSize], b[size-sumSize:size-sumSize])
	return b
}

// errDamaged means that a block contains something that is not a readable record.
var errDamaged = errors.New("a record cannot be read")

// window is how much of a block is in memory while it is read; more for a longer record.
const window = 256 << 10

// eachRecord calls f for each record of a block; text begins with the record and is valid only
// during the call. buf may be nil; it is returned for the next block.
func eachRecord(from io.Reader, s sums, buf []byte, f func(r record, text []byte)) ([]byte, error) {
	buf = slices.Grow(buf[:0], window)
	for ended := false; ; {
		at := 0
		for {
			r, ok := s.read(buf[at:])
			if !ok {
				break
			}
			f(r, buf[at:])
			at += r.size
		}
		rest := buf[at:]
		if ended && len(rest) == 0 {
			return buf, nil
		}
		if ended || at == 0 && len(rest) >= lengthOf(rest) {
			return buf, errDamaged
		}
		if need := lengthOf(rest); need > cap(buf) {
			buf = append(make([]byte, 0, need), rest...)
		} else {
			buf = append(buf[:0], rest...)
		}
		n, err := io.ReadFull(from, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if ended = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); err != nil && !ended {
			return buf, err
		}
	}
}

// lengthOf returns the length that the record at the beginning of b claims, at most mostSize.
func lengthOf(b []byte) int {
	if len(b) < headSize {
		return leastSize
	}
	return min(int(binary.LittleEndian.Uint32(b)&^headersBit), mostSize)
}
