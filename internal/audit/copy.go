package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/posix"
)

// copier copies the entries to a file, one line for each. It reads the chain, so a file that cannot
// be written delays and loses nothing: the missing entries are written when it becomes writable.
// Until then the log reports it.
type copier struct {
	path     string
	queue    *journal.Queue
	position *journal.Table
	log      *slog.Logger
	file     *os.File
	seq      uint64 // in the queue; everything up to it is copied
	n        uint64 // entries up to this one are in the file; not written again
	failed   bool
	wakes    chan struct{}
}

const positionKey = "file"

// retryEvery is the pause after a failed write.
const retryEvery = 5 * time.Second

// newCopier opens the file; last is where the chain continues.
func newCopier(ctx context.Context, o Options, last position) (*copier, error) {
	c := &copier{path: o.File, queue: o.Queue, position: o.Position, log: o.Log, wakes: make(chan struct{}, 1)}
	if err := c.open(); err != nil {
		return nil, err
	}
	if err := c.resume(ctx, last); err != nil {
		c.file.Close()
		return nil, fmt.Errorf("audit_file: %w", err)
	}
	c.wake()
	return c, nil
}

// resume finds out which entries are in the file. What the file ends with counts more than the position: a kill may have come
// between the two, and a power cut may have taken a part of the file. An empty file says nothing: the former one was
// moved away.
func (c *copier) resume(ctx context.Context, last position) error {
	text, err := c.position.Get(ctx, positionKey)
	if err == nil && text != nil {
		c.seq, err = strconv.ParseUint(string(text), 10, 64)
	}
	if err != nil {
		return err
	}
	end, err := c.lastEntry()
	if err != nil || end.n == 0 {
		return err
	}
	hash, seq, err := find(ctx, c.queue, end.n)
	switch {
	case err != nil:
		return err
	case seq > 0 && hash == end.hash:
		c.seq = seq
	case end == last: // it is missing in the chain, which continues behind it
		c.n = end.n
	case seq > 0 || end.n > last.n:
		c.log.Warn("audit_file ends with an entry of another audit log; those of this one follow", "file", c.path, "entry", end.n)
	}
	return nil
}

// open opens the file and sets its mode to 0600.
func (c *copier) open() error {
	f, err := os.OpenFile(c.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|posix.NoFollow|posix.NoWaiting, 0o600)
	if err != nil {
		return fmt.Errorf("audit_file: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("it is not a regular file")
	case info.Mode().Perm() != 0o600:
		err = f.Chmod(0o600)
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("audit_file %s: %w", c.path, err)
	}
	c.file = f
	return nil
}

// maxLine is longer than any entry.
const maxLine = journal.MaxEntry + 1

// lastEntry returns the last entry in the file, the zero position for none. A part of a line at the end would spoil the
// next one. If it is of an entry, which a kill or a power cut has left, it is removed, and that entry follows as a whole.
func (c *copier) lastEntry() (position, error) {
	f, err := os.Open(c.path)
	if err != nil {
		return position{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return position{}, err
	}
	from := max(0, info.Size()-2*maxLine)
	text, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return position{}, err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	if err := c.endLine(text[len(whole):], from+int64(len(whole))); err != nil {
		return position{}, err
	}
	whole = bytes.TrimRight(whole, "\n")
	line := whole[bytes.LastIndexByte(whole, '\n')+1:]
	e, err := parse(line)
	if err != nil {
		return position{}, nil // empty, or not our file: use the position
	}
	return position{e.N, Hash(line)}, nil
}

// endLine removes a part of a line at the end of the file, which begins there, or ends the line if it is of
// something else.
func (c *copier) endLine(part []byte, begins int64) error {
	if len(part) == 0 {
		return nil
	}
	c.log.Warn("audit_file ends with a part of a line", "file", c.path, "bytes", len(part))
	const entry = `{"n":`
	if part = bytes.TrimRight(part, "\x00"); bytes.HasPrefix(part, []byte(entry)) || bytes.HasPrefix([]byte(entry), part) {
		return c.file.Truncate(begins)
	}
	_, err := c.file.WriteString("\n")
	return err
}

func (c *copier) wake() {
	select {
	case c.wakes <- struct{}{}:
	default:
	}
}

// run copies until stop, and then copies the rest, unless life ends.
func (c *copier) run(life context.Context, stop <-chan struct{}) {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case <-c.wakes:
		case <-retry.C:
		case <-stop:
			c.copy(life)
			c.file.Close()
			return
		}
		c.copy(life)
	}
}

// copy writes the new entries. It logs the first failure and the recovery.
func (c *copier) copy(life context.Context) {
	ctx, cancel := context.WithTimeout(life, ackTime)
	defer cancel()
	switch err := c.advance(ctx); {
	case err != nil && !c.failed:
		c.failed = true
		c.log.Error("audit_file not written; the entries are in the journal and are added when it can be", "file", c.path, "err", err)
	case err == nil && c.failed:
		c.failed = false
		c.log.Info("audit_file can be written again", "file", c.path)
	}
}

func (c *copier) advance(ctx context.Context) error {
	if err := c.follow(); err != nil {
		return err
	}
	span, err := c.queue.Span(ctx)
	if err != nil {
		return err
	}
	if c.seq > span.Last {
		c.seq = 0 // a different journal
	}
	if c.seq == span.Last {
		return nil
	}
	var lines []byte
	flush := func(upto uint64) error {
		if err := c.append(lines); err != nil {
			return err
		}
		lines, c.seq = lines[:0], upto
		return c.position.Put(ctx, positionKey, strconv.AppendUint(nil, c.seq, 10))
	}
	last := span.Last
	err = each(ctx, c.queue, max(c.seq+1, span.First), last, func(e journal.Entry) error {
		if one, err := parse(e.Body); err == nil && one.N <= c.n {
			return nil
		}
		lines = append(append(lines, e.Body...), '\n')
		if len(lines) < readBytes {
			return nil
		}
		return flush(e.Seq)
	})
	if err != nil {
		return err
	}
	return flush(last)
}

// follow reopens the file after it was moved away, as logrotate does.
func (c *copier) follow() error {
	there, err := os.Lstat(c.path)
	ours, errOurs := c.file.Stat()
	if err == nil && errOurs == nil && os.SameFile(there, ours) {
		return nil
	}
	old := c.file
	if err := c.open(); err != nil {
		return err
	}
	old.Close()
	return nil
}

// append writes all lines or nothing: half a line would corrupt the next one.
func (c *copier) append(lines []byte) error {
	if len(lines) == 0 {
		return nil
	}
	info, err := c.file.Stat()
	if err != nil {
		return err
	}
	if _, err := c.file.Write(lines); err != nil {
		return errors.Join(err, c.file.Truncate(info.Size()))
	}
	return nil
}
