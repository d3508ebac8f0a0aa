package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
)

// openTrail opens the audit trail. Its head and the key of its digests lie with
// the keys of the master: elsewhere than the journal, and as safe.
func (m *Master) openTrail(ctx context.Context) error {
	queue, err := journal.OpenQueue(ctx, m.broker.Conn(), "AUDIT", m.broker.Store())
	if err != nil {
		return err
	}
	position, err := m.journal.Table(ctx, "audit")
	if err != nil {
		return err
	}
	m.trail, err = audit.Open(ctx, audit.Options{
		Queue: queue, Position: position,
		HeadFile: filepath.Join(m.cfg.PKIDir, "audit.head"), KeyFile: filepath.Join(m.cfg.PKIDir, "audit.key"),
		File: m.cfg.AuditFile, Values: m.cfg.AuditArgs, MaxAge: m.cfg.AuditRetention, MaxBytes: m.cfg.AuditMaxBytes,
		Announce: func(tag string, data json.RawMessage) { m.events.Announce(tag, data) },
		Flush:    func() error { return m.broker.Store().Flush("AUDIT") },
		Log:      m.log,
	})
	if err != nil {
		return err
	}
	m.undo = append(m.undo, m.trail.Close)
	m.events.SetAudit(m.auditBus)
	return nil
}

// who is the asker for the record.
func (a asker) who() audit.Who {
	w := audit.Who{User: a.name, Sudo: a.identity.Sudo, Backend: a.subject.Backend, Source: a.identity.Source, Minion: a.minion()}
	if uid := a.identity.UID(); uid >= 0 {
		w.UID = &uid
	}
	return w
}

// kinds are the kinds of entries, by where a command runs.
var kinds = map[acl.Scope]audit.Kind{acl.Minions: audit.Publish, acl.Runner: audit.Runner, acl.Wheel: audit.Wheel, acl.Mine: audit.Mine}

// entry describes a decision. The target is as it was written.
func entry(who asker, q acl.Question, d acl.Decision, tgt, kind string) audit.Entry {
	e := audit.Entry{
		Kind: kinds[q.Scope], Who: who.who(), Target: tgt, TargetType: kind, Minions: q.Minions, Count: len(q.Minions),
		Rule: d.Rule, Where: d.Where, Reason: d.Reason, Outside: d.Outside, Inner: d.Inner,
	}
	if d.Verdict == acl.Allow { // which the rule is the reason for
		e.Verdict, e.Reason = audit.Allowed, ""
	}
	for _, c := range q.Commands {
		e.Commands = append(e.Commands, audit.Command(c))
	}
	return e
}

// unwritten is the refusal of what can not be written down, in the audit trail or in
// the journal. Another error stays as it is.
func (m *Master) unwritten(err error) error {
	what := ""
	switch {
	case errors.Is(err, audit.ErrUnwritten):
		what = audit.ErrUnwritten.Error()
	case errors.Is(err, journal.ErrStore):
		what = journal.ErrStore.Error()
	default:
		return err
	}
	m.log.Error("refused: "+what, "err", err)
	if m.trail.Damaged() {
		return rpc.Errorf(rpc.Unavailable, "nothing was done: %s: a file of it is damaged", what).WithHint("%s", salt.Hint(err))
	}
	if errors.Is(err, syscall.ENOSPC) {
		return rpc.Errorf(rpc.Unavailable, "nothing was done: %s: %w", what, syscall.ENOSPC).WithHint("the disk of the master is full: make room, and it goes on by itself")
	}
	return rpc.Errorf(rpc.Unavailable, "nothing was done: %s", what).WithHint("the log of the master says why")
}

// book writes the entry of what is about to happen while store stores the rest.
// When it has returned nil both are kept: nothing takes effect without.
func (m *Master) book(ctx context.Context, e audit.Entry, jid salt.JID, store func() error) error {
	e.JID = jid
	p, err := m.trail.Begin(e)
	if err != nil {
		return m.unwritten(err)
	}
	if err := store(); err != nil {
		return m.unwritten(err)
	}
	return m.unwritten(p.Wait(ctx))
}

// auditBus writes down what was decided about a local user's use of the bus. Told is
// false for a refusal that is only counted.
func (m *Master) auditBus(ctx context.Context, d eventbus.Decision) (told bool, err error) {
	who := audit.Who{User: d.Who.Name, Sudo: d.Who.Sudo, Source: d.Who.Source}
	if d.Who.UID >= 0 {
		who.UID = &d.Who.UID
	}
	e := audit.Entry{
		Kind: audit.Kind(d.Verb), Who: who, Fun: "event." + d.Verb, Tags: d.Tags, Count: d.Count, Rule: d.Rule, Where: d.Where, Reason: d.Reason,
	}
	if !d.Allowed {
		return m.trail.Note(e), nil
	}
	e.Verdict = audit.Allowed
	err = m.unwritten(m.trail.Record(ctx, e))
	if err != nil && d.Verb == "listen" && d.Who.Operator {
		// Who looks for what is wrong has to hear; it changes nothing, and they could
		// read the files as well.
		m.log.Warn("an operator listens, which is not in the audit log", "user", d.Who.Name)
		err = nil
	}
	return true, err
}

// auditRunner lets runners read the trail, and repair it in the name of who.
func (m *Master) auditRunner(who asker) runner.Audit {
	return runner.Audit{
		Each: func(ctx context.Context, q runner.AuditQuery, f func(line []byte) error) error {
			return m.trail.Each(ctx, audit.Query(q), f)
		},
		Verify: func(ctx context.Context, kept ...string) (runner.AuditReport, error) {
			r, err := m.trail.Verify(ctx, kept...)
			return runner.AuditReport(r), err
		},
		Repair: func(ctx context.Context) (runner.AuditRepaired, error) {
			r, err := m.trail.Repair(ctx, who.who())
			out := runner.AuditRepaired{Good: r.Good, Entry: r.Entry, Problems: r.Problems}
			for _, k := range r.Files {
				out.Files = append(out.Files, runner.AuditFile(k))
			}
			return out, err
		},
		Digest: m.trail.Digest,
		Hash:   audit.Hash,
	}
}

// processOf names the process at the other end of a socket, for people: by the
// time that somebody reads it, the number may be another's.
func processOf(p socket.Peer) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID))
	if err != nil {
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("process %d (%s)", p.PID, strings.TrimSpace(string(name)))
}

// tellOldKeys names the files by which users of Salt are known to its master. Here they
// open nothing.
func (m *Master) tellOldKeys() {
	files, err := filepath.Glob(filepath.Join(m.cfg.CacheDir, ".*key"))
	if err != nil || len(files) == 0 {
		return
	}
	m.log.Warn("key files of users, which Salt has left in cachedir, are ignored: the kernel says who a user is. They can be deleted", "files", files)
}
