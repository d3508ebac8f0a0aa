package netapi

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/value"
)

// answer writes the response to a client, at once or piece by piece.
type answer struct {
	w     *recorder
	head  bool     // the request is HEAD
	reply encoding // the format of the response
}

// send answers with data, in the format that was chosen.
func (a *answer) send(status int, data any) error {
	var b []byte
	if a.reply == asYAML {
		f, err := output.New("yaml", output.Options{})
		if err != nil {
			return err
		}
		text, err := f.Format(data)
		if err != nil {
			return err
		}
		b = []byte(text)
	} else {
		var err error
		if b, err = value.Encode(data); err != nil {
			return err
		}
	}
	h := a.w.Header()
	h.Set("Content-Type", string(a.reply))
	h.Set("Content-Length", strconv.Itoa(len(b)))
	a.deadline()
	a.w.WriteHeader(status)
	if !a.head {
		_ = a.write(b) // an error means that the client is gone
	}
	return nil
}

// piece is how many bytes a client has to read within writeTime: a slow one gets a long answer, too.
const piece = 256 << 10

func (a *answer) write(b []byte) error {
	for part := range slices.Chunk(b, piece) {
		a.deadline()
		if _, err := a.w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// deadline limits how long the client may take to read the next piece.
func (a *answer) deadline() {
	_ = http.NewResponseController(a.w).SetWriteDeadline(time.Now().Add(writeTime)) // no connection, in tests, has none
}

// fail answers with an error page.
func (a *answer) fail(err error) {
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{status: statusOf(err), text: err.Error()}
		if f.status == http.StatusInternalServerError {
			f.text = "The server encountered an unexpected condition which prevented it from fulfilling the request."
		}
	}
	if a.w.status != 0 {
		return // the answer has begun
	}
	if f.retry != "" {
		a.w.Header().Set("Retry-After", f.retry)
	}
	if f.status == http.StatusMethodNotAllowed {
		a.w.Header().Set("Allow", f.allow)
	}
	if f.status == http.StatusRequestEntityTooLarge {
		a.w.Header().Set("Connection", "close")
	}
	page := errorPage(f.status, f.text)
	a.w.Header().Set("Content-Type", "text/html;charset=utf-8")
	a.w.Header().Set("Content-Length", strconv.Itoa(len(page)))
	a.deadline()
	a.w.WriteHeader(f.status)
	if !a.head {
		_, _ = a.w.Write([]byte(page)) // an error means that the client is gone
	}
}

func (a *answer) content(from io.Reader, size int64) error {
	a.w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	a.deadline()
	a.w.WriteHeader(http.StatusOK)
	if a.head {
		return nil
	}
	for size > 0 {
		n, err := io.CopyN(a.w, from, min(size, piece))
		if err != nil {
			return nil //nolint:nilerr // the client is gone
		}
		size -= n
		a.deadline()
	}
	return nil
}

func (a *answer) streamHeader() {
	h := a.w.Header()
	h.Set("Content-Type", "text/event-stream;charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	a.w.WriteHeader(http.StatusOK)
}

// push writes and flushes a part of a stream.
func (a *answer) push(b []byte) error {
	if err := a.write(b); err != nil {
		return err
	}
	return http.NewResponseController(a.w).Flush()
}

// step writes one step of a job run.
func (a *answer) step(kind string, data map[string]any) error {
	if a.reply == asLines {
		data["event"] = kind
		b, err := value.Encode(data)
		if err != nil {
			return err
		}
		return a.push(append(b, '\n'))
	}
	b, err := value.Encode(data)
	if err != nil {
		return err
	}
	return a.push([]byte("event: " + kind + "\ndata: " + string(b) + "\n\n"))
}
