package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// A table has one entry for each key. The server reads a snapshot up to what was the last entry when it began. An
// entry that is stored anew before it is read is then not in the snapshot at all: the older one is
// gone, and the newer one is behind the end. So what is behind the end is added.

// tailTime limits the reading of what is stored while it is read.
const tailTime = 5 * time.Minute

// errTail is why it ends.
var errTail = salt.WithHint(fmt.Errorf("for %s its entries have been stored anew faster than they are read", tailTime), "make the backup when fewer listeners, reactors and minions are at work")

// isTable reports whether a stream has one entry for each key.
func (s *Stream) isTable() bool {
	p, err := journal.PlaceOf(s.Name, s.Settings)
	return err == nil && p.Kind == journal.TableKind
}

// addTail adds to the file of a table the entries that were stored after the snapshot had begun.
func (s *Stream) addTail(ctx context.Context, nc *nats.Conn, dir string) error {
	path := filepath.Join(dir, s.File)
	tail, all := path+".tail", path+".all"
	defer os.Remove(tail)
	defer os.Remove(all)
	newest, err := s.readTail(ctx, nc, tail)
	if err != nil || len(newest) == 0 {
		return err
	}
	old, err := os.Open(path)
	if err != nil {
		return err
	}
	defer old.Close()
	more, err := os.Open(tail)
	if err != nil {
		return err
	}
	defer more.Close()
	err = s.store(all, func(w io.Writer) error { return s.join(w, old, more, newest) })
	if err != nil {
		return err
	}
	s.Messages += uint64(len(newest)) // at most; they are counted when the file is read back
	return os.Rename(all, path)
}

// readTail writes the entries behind the end of the snapshot to a file, until there are no more, and returns the sequence
// of the newest one of each subject.
func (s *Stream) readTail(ctx context.Context, nc *nats.Conn, path string) (newest map[string]uint64, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	newest = map[string]uint64{}
	begun := time.Now()
	err = writeEntries(f, func(put putter) error {
		for {
			h, body, err := nextEntry(ctx, nc, s.Name, s.Last+1)
			if err != nil || h == nil {
				return err
			}
			if time.Since(begun) > tailTime {
				return errTail
			}
			if err := put(h, body); err != nil {
				return err
			}
			s.Last, newest[h.Name] = h.Sequence, h.Sequence
		}
	})
	return newest, errors.Join(err, f.Close())
}

// nextEntry returns the first entry at or behind a sequence, nil if there is none.
func nextEntry(ctx context.Context, nc *nats.Conn, stream string, seq uint64) (*archive.Header, []byte, error) {
	var got struct {
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	err := ask(ctx, nc, "STREAM.MSG.GET."+stream, map[string]any{"seq": seq, "next_by_subj": ">"}, &got)
	if f := (*fault)(nil); errors.As(err, &f) && f.Code == codeNoMessage {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	m := &got.Message
	if m.Seq < seq || m.Subject == "" {
		return nil, nil, fmt.Errorf("the server answers with the entry %d of %.100q, not with one from %d on", m.Seq, m.Subject, seq)
	}
	h := &archive.Header{Name: m.Subject, Timestamp: m.Time.UnixNano(), Sequence: m.Seq, HeaderSize: int64(len(m.Header)), PayloadSize: int64(len(m.Data))}
	return h, append(m.Header, m.Data...), nil
}

// join writes the entries of a snapshot and of its tail, of each subject only the newest one.
func (s *Stream) join(w io.Writer, old, tail io.Reader, newest map[string]uint64) error {
	return writeEntries(w, func(put putter) error {
		err := eachEntry(old, func(h *archive.Header, body []byte) error {
			if h.Sequence == 0 {
				if body, err := s.endsAt(body); err == nil {
					h.PayloadSize = int64(len(body))
					return put(h, body)
				}
				return fmt.Errorf("the entry %.100q of its snapshot is not its state", h.Name)
			}
			if newest[h.Name] > 0 {
				return nil
			}
			return put(h, body)
		})
		if err != nil {
			return err
		}
		return eachEntry(tail, func(h *archive.Header, body []byte) error {
			if newest[h.Name] != h.Sequence {
				return nil
			}
			return put(h, body)
		})
	})
}

// endsAt returns the state of the stream, which begins its snapshot, with its present end.
func (s *Stream) endsAt(text []byte) ([]byte, error) {
	var state map[string]json.RawMessage
	if err := json.Unmarshal(text, &state); err != nil {
		return nil, err
	}
	state["last_seq"] = fmt.Append(nil, s.Last)
	return json.Marshal(state)
}

// putter writes an entry.
type putter func(h *archive.Header, body []byte) error

// writeEntries writes a snapshot with the entries that list puts, and the mark of its end.
func writeEntries(w io.Writer, list func(putter) error) error {
	to := s2.NewWriter(w)
	out := archive.NewWriter(to)
	put := func(h *archive.Header, body []byte) error {
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err := out.Write(body)
		return err
	}
	err := list(put)
	if err == nil {
		err = put(&archive.Header{}, nil)
	}
	return errors.Join(err, out.Close(), to.Close())
}
