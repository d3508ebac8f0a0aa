package journal

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnElectionHasItsTimeAfterALoss: what waits since most members were lost does not shorten the time that the
// election has after they are back: nobody is refused then. The reason is always the present one.
func TestAnElectionHasItsTimeAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("most members are not reached")
		below := &late{member: true, minority: lost}
		p, begun := newPatient(below), time.Now()
		look := func(after time.Duration) error {
			for range after / guardEvery {
				time.Sleep(guardEvery)
				p.look(time.Since(begun))
			}
			return p.Err()
		}
		open := func() bool {
			select {
			case <-p.Failed():
				return false
			default:
				return true
			}
		}
		if err := look(2 * electionTime); !errors.Is(err, lost) || open() {
			t.Errorf("without the others: %v", err)
		}
		below.minority = nil
		if err := look(electionTime - time.Second); err != nil || !open() {
			t.Errorf("while they elect a leader: %v", err)
		}
		if err := look(2 * time.Second); !errors.Is(err, errElection) || open() {
			t.Errorf("when they have elected none for %s: %v", electionTime, err)
		}
		if _ = p.Failed(); !errors.Is(p.Err(), errElection) { // as for each message
			t.Errorf("after somebody has asked: %v", p.Err())
		}
		below.minority = lost
		if err := look(guardEvery); !errors.Is(err, lost) || open() {
			t.Errorf("without the others once more: %v", err)
		}
		below.minority = nil
		look(electionTime + time.Second)
		if p.look(0); p.Err() != nil || !open() {
			t.Errorf("when all is stored: %v", p.Err())
		}
		over := errors.New("another process writes")
		p.end(over)
		if _ = p.Failed(); !errors.Is(p.Err(), over) || open() {
			t.Errorf("for good: %v", p.Err())
		}
	})
}
