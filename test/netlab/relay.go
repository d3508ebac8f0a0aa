package netlab

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// Delay is how long a packet takes in one direction.
type Delay struct {
	Base   time.Duration
	Jitter time.Duration // by so much it is longer or shorter, at random
}

func (d Delay) draw() time.Duration {
	if d.Jitter <= 0 {
		return d.Base
	}
	return max(0, d.Base-d.Jitter+rand.N(2*d.Jitter+1))
}

const (
	// waitingMost is how many packets wait in one direction, as many as in netem. More are dropped, as by a router
	// whose queue is full.
	waitingMost = 1000
	frameMost   = 1 << 16
)

// delays says how long a frame takes. What is not slow passes at once, also those that wait.
type delays func(frame []byte) (d time.Duration, slow bool)

// relay carries frames between two ends, which it closes.
type relay struct {
	ends [2]io.ReadWriteCloser
	stop chan struct{}
	work sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

func newRelay(ends [2]io.ReadWriteCloser) *relay {
	return &relay{ends: ends, stop: make(chan struct{})}
}

// start begins to carry frames: forth from the first end to the second, back the other way.
func (r *relay) start(forth, back delays) {
	r.carry(r.ends[0], r.ends[1], forth)
	r.carry(r.ends[1], r.ends[0], back)
}

// close ends it. Packets that wait are lost, as on a cable that is pulled.
func (r *relay) close() error {
	close(r.stop)
	errs := []error{r.ends[0].Close(), r.ends[1].Close()}
	r.work.Wait()
	return errors.Join(append(errs, r.errs...)...)
}

// packet is a frame that waits.
type packet struct {
	frame []byte
	due   time.Time // not written before
}

// carry does what a relay does, in one direction.
func (r *relay) carry(from io.Reader, to io.Writer, how delays) {
	waiting := make(chan packet, waitingMost)
	r.work.Go(func() { r.report(take(from, to, how, waiting)) })
	r.work.Go(func() { r.report(r.deliver(to, waiting)) })
}

// report keeps why one direction ended before close was called.
func (r *relay) report(err error) {
	select {
	case <-r.stop:
	default:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.errs = append(r.errs, err)
	}
}

// take reads frames until their end is closed.
func take(from io.Reader, to io.Writer, how delays, waiting chan<- packet) error {
	buffer := make([]byte, frameMost)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return err
		}
		d, slow := how(buffer[:n])
		if !slow {
			if _, err := to.Write(buffer[:n]); err != nil {
				return err
			}
			continue
		}
		select {
		case waiting <- packet{bytes.Clone(buffer[:n]), time.Now().Add(d)}:
		default:
		}
	}
}

// deliver writes frames when they are due, or later: none overtakes another one, or TCP would take most packets
// for lost where the jitter is larger than the time between two.
func (r *relay) deliver(to io.Writer, waiting <-chan packet) error {
	for {
		select {
		case p := <-waiting:
			select {
			case <-time.After(time.Until(p.due)):
			case <-r.stop:
				return nil
			}
			if _, err := to.Write(p.frame); err != nil {
				return err
			}
		case <-r.stop:
			return nil
		}
	}
}
