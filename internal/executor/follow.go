package executor

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// Bounds of what a job keeps of the output of its commands for whoever follows it.
const (
	followBytes = 256 << 10       // bytes; then the command waits, as for any slow reader
	followMost  = 4 << 20         // bytes that are kept of a command that has ended, without waiting
	followPart  = 64 << 10        // bytes of one message
	followLine  = 16 << 10        // bytes of a line; a longer one is shown in parts
	followTime  = 2 * time.Minute // that the master may take for one message
)

// follower sends what the commands of a job write to whoever follows it, in order
// and no faster than that one reads. It implements process.Watcher.
type follower struct {
	x    *Executor
	up   *upstream.Uplink // to the master that has sent the job
	jid  string
	wake chan struct{} // there is something to send, or an end
	done chan struct{} // closed when nothing is sent any more

	mu      sync.Mutex
	drained *sync.Cond
	lines   []line
	size    int
	partial [2][]byte // the beginning of a line of each stream
	free    bool      // the command has ended: nothing waits for space
	lost    bool      // something was left out, or nobody follows any more
	ended   bool
}

// line is a line with its end, or what a command left without one.
type line struct {
	toStderr bool
	text     string
}

// follow begins to send what the job's commands write.
func (x *Executor) follow(e *job.Envelope, u *upstream.Uplink) *follower {
	f := newFollower()
	f.x, f.up, f.jid = x, u, string(e.JID)
	go f.run()
	return f
}

func newFollower() *follower {
	f := &follower{wake: make(chan struct{}, 1), done: make(chan struct{})}
	f.drained = sync.NewCond(&f.mu)
	return f
}

// Wrote implements process.Watcher.
func (f *follower) Wrote(toStderr bool, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stream := 0
	if toStderr {
		stream = 1
	}
	for len(b) > 0 && !f.lost {
		line, rest, _ := bytes.Cut(b, []byte("\n"))
		if len(rest) > 0 || b[len(b)-1] == '\n' {
			line = b[:len(line)+1]
		}
		b = b[len(line):]
		f.partial[stream] = append(f.partial[stream], line...)
		if text := f.partial[stream]; text[len(text)-1] == '\n' || len(text) >= followLine {
			f.flush(stream)
		}
	}
}

// flush puts a line into the queue, and waits for space while the command runs.
func (f *follower) flush(stream int) {
	for f.size > followBytes && !f.free && !f.lost {
		f.drained.Wait()
	}
	text := string(f.partial[stream])
	f.partial[stream] = f.partial[stream][:0]
	if text == "" || f.lost {
		return
	}
	if f.size > followMost {
		f.lost = true
		return
	}
	f.lines = append(f.lines, line{stream == 1, text})
	f.size += len(text)
	f.stir()
}

func (f *follower) stir() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Ended implements process.Watcher.
func (f *follower) Ended() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = true
	f.drained.Broadcast()
}

// end sends what is left, and that it is all.
func (f *follower) end() {
	f.mu.Lock()
	f.free = true
	for stream := range f.partial {
		f.flush(stream)
	}
	f.ended = true
	f.mu.Unlock()
	f.stir()
	<-f.done
}

func (f *follower) run() {
	defer close(f.done)
	for {
		r, more := f.take()
		if len(r.Output) > 0 || r.OutputEnd {
			if err := f.send(r); err != nil {
				f.x.Log.Debug("what a job's commands write is not followed any more", "jid", f.jid, "err", err)
				f.giveUp()
			}
			continue
		}
		if !more {
			return
		}
		<-f.wake
	}
}

// take returns the next part of the output. More is false when nothing comes any
// more.
func (f *follower) take() (r job.Report, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.State = job.Running
	if f.lost {
		return r, !f.ended
	}
	r.Output = f.next()
	f.drained.Broadcast()
	if f.ended && len(f.lines) == 0 {
		r.OutputEnd, f.lost = true, true // nothing is behind it
	}
	return r, !f.ended
}

// next takes lines from the queue, those of one stream that follow each other as
// one text.
func (f *follower) next() (parts []job.Output) {
	for size := 0; size < followPart && len(f.lines) > 0; {
		var text strings.Builder
		toStderr := f.lines[0].toStderr
		for size < followPart && len(f.lines) > 0 && f.lines[0].toStderr == toStderr {
			text.WriteString(f.lines[0].text)
			size += len(f.lines[0].text)
			f.size -= len(f.lines[0].text)
			f.lines = f.lines[1:]
		}
		parts = append(parts, job.Output{Error: toStderr, Text: value.Value{V: text.String()}})
	}
	return parts
}

func (f *follower) giveUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost, f.lines, f.size = true, nil, 0
	f.drained.Broadcast()
}

func (f *follower) send(r job.Report) error {
	s := f.up.Session()
	if s == nil {
		return rpc.ErrLost
	}
	ctx, cancel := context.WithTimeout(f.x.ctx, followTime)
	defer cancel()
	return s.Ask(ctx, "ret."+f.jid, r, nil)
}
