package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
)

// Sizes of what is on its way between the server and this package, in either direction.
const (
	chunkSize  = 128 << 10
	windowSize = 4 << 20
)

// chunkTime is how long one piece may take.
const chunkTime = 30 * time.Second

// snapshot asks the server for a stream, and writes what comes to a file.
func snapshot(ctx context.Context, nc *nats.Conn, dir, name string) (s *Stream, err error) {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // it ends with the connection at the latest
	var begun struct {
		Config json.RawMessage `json:"config"`
		State  state           `json:"state"`
	}
	question := map[string]any{"deliver_subject": inbox, "no_consumers": true, "chunk_size": chunkSize, "window_size": windowSize}
	if err := ask(ctx, nc, "STREAM.SNAPSHOT."+name, question, &begun); err != nil {
		return nil, err
	}
	settings, err := compact(begun.Config)
	if err != nil {
		return nil, err
	}
	s = &Stream{Name: name, File: fileOf(name), Messages: begun.State.Messages, First: begun.State.First, Last: begun.State.Last, Settings: settings, newest: begun.State.Newest}
	return s, s.store(filepath.Join(dir, s.File), func(w io.Writer) error { return receive(ctx, sub, w) })
}

// store writes a file of the stream, and notes its size and its sum.
func (s *Stream) store(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	size := int64(0)
	err = write(io.MultiWriter(f, sum, counter{&size}))
	if err == nil {
		err = f.Sync()
	}
	s.Bytes, s.SHA256 = size, hex.EncodeToString(sum.Sum(nil))
	return errors.Join(err, f.Close())
}

// counter counts bytes.
type counter struct{ size *int64 }

// Write implements io.Writer.
func (c counter) Write(p []byte) (int, error) {
	*c.size += int64(len(p))
	return len(p), nil
}

// state is what the server says about the messages of a stream.
type state struct {
	Messages uint64 `json:"messages"`
	First    uint64 `json:"first_seq"`
	Last     uint64 `json:"last_seq"`

	Newest time.Time `json:"last_ts"`
}

// receive writes what the server sends, which waits for the confirmation of each piece.
func receive(ctx context.Context, sub *nats.Subscription, w io.Writer) error {
	for {
		m, err := next(ctx, sub, chunkTime)
		if err != nil {
			return err
		}
		if len(m.Data) == 0 { // the end
			if status := m.Header.Get("Status"); status != "" && status != "204" {
				return fmt.Errorf("the server has ended with %s %s", status, m.Header.Get("Description"))
			}
			return nil
		}
		if _, err := w.Write(m.Data); err != nil {
			return err
		}
		if m.Reply == "" {
			continue
		}
		if err := m.Respond(nil); err != nil {
			return err
		}
	}
}

// next waits for a message, and no longer than limit.
func next(ctx context.Context, sub *nats.Subscription, limit time.Duration) (*nats.Msg, error) {
	once, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m, err := sub.NextMsgWithContext(once)
	return m, unanswered(ctx, err, limit)
}
