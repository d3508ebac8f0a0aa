package master

import (
	"context"

	"github.com/brinebus/brine/internal/authz"
)

// longRead is the turn of a runner that reads long events, whose returns may have sixty
// megabytes each. They are in memory several times until the answer is made, which one
// runner does at a time. The answer waits for whoever asked, who may be slow: a principal
// has one of those at a time, and all together two.
type longRead struct {
	m           *Master
	who         string
	endOfRead   func()
	endOfAnswer func()
}

// maxLongAnswers is how many long answers may wait for those who asked.
const maxLongAnswers = 2

func (m *Master) longRead(who authz.Principal) *longRead {
	return &longRead{m: m, who: who.Key()}
}

// begin takes the turn, the first time. A runner reads one event after the other.
func (l *longRead) begin(ctx context.Context, _ int) (err error) {
	if l.endOfAnswer == nil {
		if l.endOfAnswer, err = l.m.longAnswers.Acquire(ctx, l.who); err != nil {
			return err
		}
	}
	if l.endOfRead == nil {
		l.endOfRead, err = l.m.longReads.Acquire(ctx, l.who)
	}
	return err
}

// read says that the answer is made.
func (l *longRead) read() {
	if l.endOfRead != nil {
		l.endOfRead()
		l.endOfRead = nil
	}
}

// sent says that the answer has been taken, or that nobody wants it any more.
func (l *longRead) sent() {
	l.read()
	if l.endOfAnswer != nil {
		l.endOfAnswer()
		l.endOfAnswer = nil
	}
}
