package master

import (
	"context"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

func (m *Master) openDispatch() (err error) {
	m.dispatch, err = dispatch.Open(m.ctx, dispatch.Options{
		Journal: m.journal, Fleet: m.fleet, Keys: m.keys, Events: m.events, Audit: auditor{m}, Conn: m.broker.Conn(), Key: m.key,
		Clock: &m.clock, Steady: m.steady, Retention: m.retention(), Durable: m.durable, Log: m.log,
	})
	m.undo = append(m.undo, m.dispatch.Wait)
	return err
}

// auditor is the audit log as dispatch takes it.
type auditor struct{ m *Master }

// Note implements dispatch.Audit.
func (a auditor) Note(e audit.Entry) bool { return a.m.trail.Note(e) }

// Book implements dispatch.Audit.
func (a auditor) Book(ctx context.Context, e audit.Entry, jid salt.JID, store func() error) error {
	return a.m.book(ctx, e, jid, store)
}

// principal is who asks, as dispatch takes them.
func (a asker) principal() dispatch.Principal {
	return dispatch.Principal{Name: a.name, Backend: a.subject.Backend, Minion: a.minion()}
}

// publish runs a job of a local user.
func (m *Master) publish(ctx context.Context, r *rpc.Request) error {
	var q protocol.Publish
	if err := r.Decode(&q); err != nil {
		return err
	}
	who := m.asker(ctx, r.From)
	return m.whileGood(ctx, who, func(ctx context.Context) error { return m.publishFor(ctx, r, q, who) })
}

// publishFor runs a job for whoever asks and tells its course.
func (m *Master) publishFor(ctx context.Context, r *rpc.Request, q protocol.Publish, who asker) error {
	may, err := m.permitPublish(ctx, who, q)
	if r.Decide(err) != nil {
		return err
	}
	return m.dispatch.Publish(ctx, r, q, who.principal(), may)
}

// follow tells the course of a job that was started before: from its beginning,
// until nothing more is expected for now. Who started it may, and who may use the
// runner jobs.follow.
func (m *Master) follow(ctx context.Context, r *rpc.Request) error {
	var q protocol.Follow
	if err := r.Decode(&q); err != nil {
		return err
	}
	jid, err := salt.ParseJID(string(q.JID))
	if err != nil {
		return rpc.Errorf(rpc.Usage, "%v", err)
	}
	who := m.asker(ctx, r.From)
	question := acl.Question{Scope: acl.Runner, Commands: []acl.Command{{Function: "jobs.follow", Args: []any{string(jid)}}}}
	k, err := m.dispatch.Lookup(ctx, jid)
	if err != nil {
		return err
	}
	if k == nil || !who.started(k) {
		var e audit.Entry
		if e, err = m.permit(who, question, "", ""); err == nil {
			e.JID = jid
			err = m.unwritten(m.trail.Record(ctx, e))
		}
	}
	if r.Decide(err) != nil {
		return err
	}
	if k == nil {
		return rpc.Errorf(rpc.NotFound, "the journal has no job %s", jid).WithHint("'salt-run jobs.list_jobs' lists those that it has")
	}
	return m.whileGood(ctx, who, func(ctx context.Context) error { return m.dispatch.Follow(ctx, r, jid) })
}

// execute runs a job for a runner, one of its own or one of who asks, and gathers its
// course.
func (m *Master) execute(ctx context.Context, who asker, q protocol.Publish) ([]job.Update, error) {
	permit := m.permitPublish
	if q.Internal {
		permit = m.forRunner
	}
	may, err := permit(ctx, who, q)
	if err != nil {
		return nil, err
	}
	return m.dispatch.Execute(ctx, q, who.principal(), may)
}
