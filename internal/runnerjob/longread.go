package runnerjob

import (
	"context"
	"errors"
	"time"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/rpc"
)

// longRead is the turn of a runner that reads long events, whose returns may have sixty
// megabytes each. They are in memory several times until the answer is made, so one runner does
// that at a time. The answer then waits for its reader, who may be slow: a principal has one
// such answer at a time, and all together two. A reader who takes longer than answerTurn gives
// way when another principal waits.
type longRead struct {
	s           *Server
	who         string
	turn        time.Duration
	endOfRead   func()
	endOfAnswer func()
}

// Limits of long answers that wait for their readers.
const (
	maxLongAnswers = 2
	answerTurn     = 15 * time.Second // a fast reader takes a second for sixty megabytes
)

var errSlow = errors.New("others wait")

func (s *Server) longRead(who authz.Principal) *longRead {
	return &longRead{s: s, who: who.Key(), turn: answerTurn}
}

// begin takes the turn, the first time. A runner reads one event after the other.
func (l *longRead) begin(ctx context.Context, _ int) (err error) {
	if l.endOfAnswer == nil {
		if l.endOfAnswer, err = l.s.longAnswers.Acquire(ctx, l.who); err != nil {
			return err
		}
	}
	if l.endOfRead == nil {
		l.endOfRead, err = l.s.longReads.Acquire(ctx, l.who)
	}
	return err
}

// read is called when the answer is made.
func (l *longRead) read() {
	if l.endOfRead != nil {
		l.endOfRead()
		l.endOfRead = nil
	}
}

// send sends the finished answer.
func (l *longRead) send(ctx context.Context, r *rpc.Request, body []byte) error {
	l.read()
	within, end := l.giveWay(ctx)
	defer end()
	err := r.SendRaw(within, body)
	if err != nil && errors.Is(context.Cause(within), errSlow) {
		return rpc.Errorf(rpc.Unavailable, "the answer of %d bytes was not taken within %s, and others wait to read such ones: ask again", len(body), l.turn)
	}
	return err
}

// giveWay returns ctx with an end by errSlow when it is another principal's turn.
func (l *longRead) giveWay(ctx context.Context) (within context.Context, end func()) {
	if l.endOfAnswer == nil {
		return ctx, func() {}
	}
	within, cancel := context.WithCancelCause(ctx)
	stop := l.s.longAnswers.GiveWay(l.turn, func() { cancel(errSlow) })
	return within, func() {
		stop()
		cancel(nil)
	}
}

// sent is called when the answer was read, or nobody waits for it any more.
func (l *longRead) sent() {
	l.read()
	if l.endOfAnswer != nil {
		l.endOfAnswer()
		l.endOfAnswer = nil
	}
}
