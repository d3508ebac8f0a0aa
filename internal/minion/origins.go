package minion

import (
	"reflect"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// origins knows which masters have sent the jobs that are under way: each is told
// how its job goes, and gets the return. Masters of one system may all send the
// same job; it runs once.
type origins struct {
	mu   sync.Mutex
	jobs map[salt.JID]*origin
}

// origin is where one job came from.
type origin struct {
	job     *job.Envelope
	senders []sender
}

// sender is one master that has sent a job.
type sender struct {
	up  *uplink
	key pki.PublicKey
}

// session is the present one with the master that has sent the job; nil while
// there is none, or another master is in use.
func (s sender) session() *session {
	if now := s.up.session.Load(); now != nil && now.Master.Equal(s.key) {
		return now
	}
	return nil
}

// claimed is what a job is to those that are under way.
type claimed int

const (
	fresh   claimed = iota // its id is new among them
	again                  // the same master has sent it twice
	another                // it is another job with the id of one of them
	shared                 // it is one of them, of another master
)

// claim notes a job that has come over a session.
func (o *origins) claim(e *job.Envelope, s *session) claimed {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.jobs[e.JID]
	if at == nil {
		if o.jobs == nil {
			o.jobs = map[salt.JID]*origin{}
		}
		o.jobs[e.JID] = &origin{job: e, senders: []sender{{s.up, s.Master}}}
		return fresh
	}
	if !reflect.DeepEqual(at.job.Commands, e.Commands) {
		return another
	}
	for i := range at.senders {
		if w := &at.senders[i]; w.up == s.up {
			w.key = s.Master // another master of the same system may have taken over
			return again
		}
	}
	at.senders = append(at.senders, sender{s.up, s.Master})
	return shared
}

// of returns who has sent a job that is under way.
func (o *origins) of(jid salt.JID) []sender {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at := o.jobs[jid]; at != nil {
		return slices.Clone(at.senders)
	}
	return nil
}

// end forgets a job and returns who has sent it.
func (o *origins) end(jid salt.JID) []sender {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.jobs[jid]
	delete(o.jobs, jid)
	if at == nil {
		return nil
	}
	return at.senders
}
