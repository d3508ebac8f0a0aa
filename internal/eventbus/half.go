package eventbus

import (
	"context"
	"errors"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
)

// half is a long event that has been sent to a listener only in part.
type half struct {
	seq  uint64
	live bool          // it is not stored: it cannot be read again
	sent int           // bytes of its text, so far
	used time.Duration // of the turns of this listener
}

var (
	// errHalf says that the listener has given its turn to another principal, and continues
	// later.
	errHalf = errors.New("the event is taken in part")
	// errGiveWay ends the turn of a listener.
	errGiveWay = errors.New("others wait for their turn")
)

// goOn sends more of the event that the caller has received in part. It waits until the caller
// reads before it takes a turn, so a caller that does not read uses none.
func (l *listener) goOn(ctx context.Context) error {
	if err := l.req.Wait(ctx); err != nil {
		return err
	}
	if err := l.turn(ctx, longEvent); err != nil {
		return err
	}
	defer l.endTurn()
	text, err := l.again(ctx, l.half.seq)
	if err != nil {
		return err
	}
	if err := l.sendRest(ctx, text); !errors.Is(err, errHalf) {
		return err
	}
	return nil
}

// again returns the text of a long event, read from the journal.
func (l *listener) again(ctx context.Context, seq uint64) (text []byte, err error) {
	err = l.events.journal.Replay(ctx, seq, seq, func(e journal.Text) error {
		text = append(event.AppendStored(own(e), e.Body, e.Seq), '\n')
		return nil
	})
	if err == nil && len(text) <= l.half.sent {
		err = rpc.Errorf(rpc.Unavailable, "the event %d was removed from the journal before it was read", seq)
	}
	if !l.q.Lines && err == nil {
		text = text[:len(text)-1]
	}
	return text, err
}

// sendRest sends the rest of a long event, until it is complete or another principal has waited
// for the turn.
func (l *listener) sendRest(ctx context.Context, text []byte) error {
	turn, end := context.WithTimeout(ctx, longTime-l.half.used)
	defer end()
	turn, giveWay := context.WithCancelCause(turn)
	defer giveWay(nil)
	if l.endLong != nil {
		defer l.events.long.GiveWay(longTurn, func() { giveWay(errGiveWay) })()
	}
	begun := time.Now()
	err := l.sendParts(turn, text)
	l.half.used += time.Since(begun)
	switch {
	case err == nil:
		l.half = nil
		l.others.letGo()
		return nil
	case ctx.Err() != nil || turn.Err() == nil:
		return err
	case errors.Is(context.Cause(turn), errGiveWay) && !l.half.live:
		return errHalf
	}
	return rpc.Errorf(rpc.Unavailable, "an event of %d bytes was not read in time", len(text))
}

func (l *listener) sendParts(ctx context.Context, text []byte) error {
	for {
		rest := text[l.half.sent:]
		part := rest[:min(len(rest), rpc.MaxPart)]
		more := len(part) < len(rest)
		if err := l.req.SendPart(ctx, part, more); err != nil {
			return err
		}
		if l.half.sent += len(part); !more {
			return nil
		}
	}
}
