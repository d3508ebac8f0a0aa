package upstream

import (
	"reflect"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Origins records which masters have sent the running jobs: each gets the progress and the
// return. If several masters of one system send the same job, it runs once.
type Origins struct {
	mu   sync.Mutex
	jobs map[salt.JID]*origin
}

// origin is where one job came from.
type origin struct {
	job     *job.Envelope
	senders []Sender
}

// Sender is one master that has sent a job.
type Sender struct {
	Up         *Uplink
	Generation string // of the uplink, in which it has sent the job
	key        pki.PublicKey
}

// Session is the present session with the master that has sent the job, or with another member
// of its cluster, which passes on what it is told about the job; nil if there is none, or
// another master is in use.
func (s Sender) Session() *Session {
	all := s.Up.all
	if s.Generation != all.Generation(s.Up.Number) { // another master is there by now
		_, _, list := all.Heirs(s.Up.Number, s.Generation)
		return first(list)
	}
	if now := s.Up.Session(); now != nil && !all.systems.hasLeft(s.Up.Number) && (now.Master.Equal(s.key) || all.cluster.fellows(now.Master, s.key)) {
		return now
	}
	if !all.systems.isWith(s.Up.Number, s.key) {
		return nil
	}
	return all.Instead(s.Up)
}

// Claimed is the relation of a new job to the running ones.
type Claimed int

const (
	Fresh   Claimed = iota // its id is new
	Again                  // the same master has sent it again
	Another                // another job has this id
	Shared                 // another master has sent the same job
)

// Claim records a job that has arrived over a session.
func (o *Origins) Claim(e *job.Envelope, s *Session) Claimed {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.jobs[e.JID]
	if at == nil {
		if o.jobs == nil {
			o.jobs = map[salt.JID]*origin{}
		}
		o.jobs[e.JID] = &origin{job: e, senders: []Sender{s.asSender()}}
		return Fresh
	}
	if !reflect.DeepEqual(at.job.Commands, e.Commands) {
		return Another
	}
	for i := range at.senders {
		if w := &at.senders[i]; w.Up == s.Up {
			*w = s.asSender() // another master of the same system may have replaced it
			return Again
		}
	}
	at.senders = append(at.senders, s.asSender())
	return Shared
}

func (s *Session) asSender() Sender {
	return Sender{s.Up, s.Up.all.Generation(s.Up.Number), s.Master}
}

// Of returns which masters have sent a running job.
func (o *Origins) Of(jid salt.JID) []Sender {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at := o.jobs[jid]; at != nil {
		return slices.Clone(at.senders)
	}
	return nil
}

// End forgets a job and returns which masters have sent it.
func (o *Origins) End(jid salt.JID) []Sender {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.jobs[jid]
	delete(o.jobs, jid)
	if at == nil {
		return nil
	}
	return at.senders
}
