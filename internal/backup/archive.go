package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
)

// A snapshot is a compressed archive of the server: the state of the stream, each message with
// its sequence, and an empty entry as the mark of the end.

// errCut is the error about an archive without that mark.
var errCut = errors.New("the snapshot has no end")

// maxEntry limits an entry: the server takes messages of a megabyte.
const maxEntry = 8 << 20

// eachEntry calls f for the entries of a snapshot, except the mark of its end.
func eachEntry(r io.Reader, f func(h *archive.Header, body []byte) error) error {
	in := archive.NewReader(s2.NewReader(r))
	var body bytes.Buffer
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return errCut
		}
		if err != nil {
			return err
		}
		if ends(h) {
			return nil
		}
		if h.HeaderSize+h.PayloadSize > maxEntry {
			return fmt.Errorf("an entry of the snapshot has %d bytes, the limit is %d", h.HeaderSize+h.PayloadSize, maxEntry)
		}
		body.Reset()
		if _, err := body.ReadFrom(in); err != nil {
			return err
		}
		if err := f(h, body.Bytes()); err != nil {
			return err
		}
	}
}

// ends reports whether an entry is the mark of the end.
func ends(h *archive.Header) bool {
	return h.Name == "" && h.Sequence == 0 && h.Timestamp == 0 && h.HeaderSize == 0 && h.PayloadSize == 0
}

// counted is what a snapshot holds.
type counted struct{ messages, last uint64 }

func count(r io.Reader) (c counted, err error) {
	err = eachEntry(r, func(h *archive.Header, _ []byte) error {
		if h.Sequence > 0 {
			c.messages++
			c.last = h.Sequence
		}
		return nil
	})
	return c, err
}

// rewrite copies a snapshot with other messages: change may change the subject and returns the new
// body. It reads r to its end.
func rewrite(w io.Writer, r io.Reader, change func(h *archive.Header, body []byte) []byte) error {
	return writeEntries(w, func(put putter) error {
		err := eachEntry(r, func(h *archive.Header, body []byte) error {
			if h.Sequence > 0 {
				body = change(h, body)
			}
			return put(h, body)
		})
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		return err
	})
}
