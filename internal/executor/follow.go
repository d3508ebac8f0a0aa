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

// Limits of the output of a job's commands that is kept for a user who follows it.
const (
	followBytes = 256 << 10       // bytes; then the command waits, as with any slow reader
	followMost  = 4 << 20         // bytes that are kept without waiting while no command runs
	followPart  = 64 << 10        // bytes of one message
	followLine  = 16 << 10        // bytes of a line; a longer one is shown in parts
	followTime  = 2 * time.Minute // how long the master may take for one message
)

// follower sends the output of a job's commands to the user who follows it, in order and no
// faster than they read. It implements process.Watcher.
type follower struct {
	x    *Executor
	up   *upstream.Uplink // the uplink of the master that has sent the job
	jid  string
	wake chan struct{} // signals something to send, or the end
	done chan struct{} // closed when nothing more is sent

	mu      sync.Mutex
	drained *sync.Cond
	lines   []line
	size    int
	partial [2][]byte // the beginning of a line of each stream
	running int       // programs that run: only they wait for space
	free    bool      // nor do they any more: the job has ended
	lost    bool      // something was left out, or nobody follows the job any more
	ended   bool
}

// line is a line with its end, or the rest that a command left without one.
type line struct {
	toStderr bool
	text     string
}

// follow starts to send the output of the job's commands.
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
	for f.size > followBytes && f.running > 0 && !f.free && !f.lost {
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

// Began implements process.Watcher: a job runs its commands one after the other, and some of them several
// programs.
func (f *follower) Began() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running++
}

// Ended implements process.Watcher.
func (f *follower) Ended() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	f.drained.Broadcast()
}

// end sends the rest, and that the output is complete.
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
				f.x.Log.Debug("the output of a job's commands is no longer followed", "jid", f.jid, "err", err)
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

// take returns the next part of the output. more is false when it was the last.
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
		r.OutputEnd, f.lost = true, true // nothing follows
	}
	return r, !f.ended
}

// next takes lines from the queue; consecutive ones of one stream become one text.
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
	s := f.x.Masters.Instead(f.up)
	if s == nil {
		return rpc.ErrLost
	}
	ctx, cancel := context.WithTimeout(f.x.ctx, followTime)
	defer cancel()
	return s.Ask(ctx, "ret."+f.jid, r, nil)
}
