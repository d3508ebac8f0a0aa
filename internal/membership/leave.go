package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
)

// kindLeave is the request of a member that leaves in good order, kindStay that of one that does not
// leave after all.
const (
	kindLeave = "leave"
	kindStay  = "stay"
)

const (
	// leaveTime is how long after its request a member may take to stop: its minions get ten
	// seconds, and what is under way some more. Later the request no longer counts.
	leaveTime = 5 * time.Minute
	// leaveLook is the pause between two looks whether it has stopped.
	leaveLook = 250 * time.Millisecond
)

// leaving are the members that have asked to leave, and those whose removal was learned from others,
// until they are forgotten. One leaves at a time: each counts on all others when it looks whether
// enough are left.
type leaving struct {
	mu    sync.Mutex
	own   bool // this member leaves
	until map[string]time.Time
	came  chan struct{} // signals a new one

	forgets string             // the one that is being forgotten
	stop    context.CancelFunc // ends that

	departed departed // those that have left
}

func (l *leaving) signal() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.came == nil {
		l.came = make(chan struct{}, 1)
	}
	return l.came
}

// begin says that this member leaves, unless another one does.
func (l *leaving) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own {
		return errors.New("this member is leaving already")
	}
	if other := l.other(""); other != "" {
		return salt.WithHint(fmt.Errorf("member %s is leaving, and until it has left nobody knows whether enough are left", other), "ask again when it has left; if it does not stop, it is not counted as leaving any more after some minutes")
	}
	l.own = true
	return nil
}

func (l *leaving) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own = false
}

// other returns a member that leaves and is not this one, "" if there is none. The caller holds the lock.
func (l *leaving) other(than string) string {
	for _, name := range slices.Sorted(maps.Keys(l.until)) {
		if name != than && time.Now().Before(l.until[name]) {
			return name
		}
	}
	return ""
}

// admit remembers a member that asks to leave, unless this one or another one leaves.
func (l *leaving) admit(name string) error {
	l.mu.Lock()
	other := l.other(name)
	own := l.own
	if other == "" && !own {
		l.put(name)
	}
	l.mu.Unlock()
	switch {
	case own:
		return cluster.Later("that member is leaving itself: ask again when it has left")
	case other != "":
		return cluster.Later("another member, %s, is leaving: ask again when it has left", other)
	}
	l.wake()
	return nil
}

// put remembers one. It is the member that asked, or was linked, so there are no more than members. The
// caller holds the lock.
func (l *leaving) put(name string) {
	if l.until == nil {
		l.until = map[string]time.Time{}
	}
	l.until[name] = time.Now().Add(leaveTime)
}

// add remembers one that others have removed.
func (l *leaving) add(name string) {
	l.mu.Lock()
	l.put(name)
	l.mu.Unlock()
	l.wake()
}

func (l *leaving) wake() {
	select {
	case l.signal() <- struct{}{}:
	default:
	}
}

// remove forgets that a member leaves. If the others are being asked to forget it, that ends.
func (l *leaving) remove(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, name)
	if l.forgets == name && l.stop != nil {
		l.stop()
	}
}

// has reports whether a member leaves, as far as this one knows.
func (l *leaving) has(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until[name])
}

// forgetting notes that a member is being forgotten, which stop ends. It is false if that does not leave
// after all.
func (l *leaving) forgetting(name string, stop context.CancelFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgets, l.stop = name, stop
	_, leaves := l.until[name]
	return leaves
}

// names returns those whose time is not over, and forgets the others, which it returns as late.
func (l *leaving) names() (list, late []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, until := range l.until {
		if time.Now().After(until) {
			delete(l.until, name)
			late = append(late, name)
			continue
		}
		list = append(list, name)
	}
	slices.Sort(list)
	slices.Sort(late)
	return list, late
}

// errTooFew is wrapped by the refusal of a leave after which too few would be left.
var errTooFew = errors.New("too few members would be left")

// Leave lets this member leave the cluster in good order: the others forget it when it has stopped,
// which the caller sees to. What it leads it gives away as it stops. Its mark says that it leaves, so that its
// next start does not make it a member again, see CheckLeave. Its key stays valid.
func (m *Membership) Leave(ctx context.Context) (runner.LeaveReport, error) {
	if m == nil {
		return runner.LeaveReport{}, runner.ErrAlone
	}
	if err := m.leaving.begin(); err != nil {
		return runner.LeaveReport{}, err
	}
	report, err := m.leave(ctx)
	if err != nil {
		m.leaving.end()
	}
	return report, err
}

// leave is Leave while no other member leaves. It must have begun before afterLeave counts.
func (m *Membership) leave(ctx context.Context) (runner.LeaveReport, error) {
	report, err := m.afterLeave()
	if err == nil {
		err = whole(ctx, m, len(report.Left)+1)
	}
	if err != nil {
		return report, err
	}
	if err := member.WriteLeave(m.mark, member.Leaves); err != nil {
		return report, err
	}
	for n, name := range report.Left {
		if err := m.exchange.Ask(ctx, name, kindLeave, nil, nil); err != nil {
			m.stay(ctx, m.exchange.Ask, report.Left[:n+1])
			return report, errors.Join(fmt.Errorf("this member does not leave, since %s does not agree: %w", name, err), member.WriteLeave(m.mark, member.Stays))
		}
	}
	m.log.Warn("this member leaves the cluster", "member", m.name, "left", report.Left)
	return report, nil
}

// stay tells members that this one does not leave: they would forget it if it were restarted soon. One
// that cannot be told forgets the request by itself, after leaveTime.
func (m *Membership) stay(ctx context.Context, ask func(ctx context.Context, to, kind string, body, answer any) error, informed []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusTime)
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range informed {
		wg.Go(func() {
			if err := ask(ctx, name, kindStay, nil, nil); err != nil {
				m.log.Warn("a member may take this one for one that leaves: do not stop it for some minutes", "member", name, "pause", leaveTime, "err", err)
			}
		})
	}
	wg.Wait()
}

// afterLeave says who is left without this member, and refuses if they could not go on.
func (m *Membership) afterLeave() (runner.LeaveReport, error) {
	report := runner.LeaveReport{Member: m.name, Minions: m.own.Minions(), Left: m.exchange.Others(), Copies: m.copies}
	slices.Sort(report.Left)
	if err := m.broker.Store().Err(); err != nil {
		return report, fmt.Errorf("this member cannot leave now: %w", err)
	}
	if n := m.jobs.Unstored(); n > 0 { // what this member stores after that, as a single master, the others do not get
		return report, salt.WithHint(fmt.Errorf("this member cannot leave now: it has run %d jobs without the quorum that are not stored yet", n),
			"wait until 'salt-run cluster.status' shows unstored_jobs: 0, then ask again; if it does not get less, the log says why")
	}
	counted := m.broker.Cluster.Known() - 1
	if counted < 0 {
		return report, salt.WithHint(errors.New("this member cannot leave now: the members have no leader"), "wait for the election, it takes some seconds, then ask again")
	}
	report.Quorum = counted/2 + 1
	switch {
	case counted < 2:
		return report, salt.WithHint(fmt.Errorf("%w: a cluster needs at least two", errTooFew), "to go on with a single master, see 'From one master to three, and back' in doc/operating.md")
	case len(report.Left) < report.Quorum:
		return report, salt.WithHint(fmt.Errorf("%w: of the %d that would be left %d have to run, and %d are running", errTooFew, counted, report.Quorum, len(report.Left)),
			"start the others first; take out those that are lost with 'salt-run cluster.remove MEMBER'")
	}
	return report, nil
}

// whole refuses a leave while streams do not have the copies that so many running members can have: the end of this
// member could then be the end of the last whole copy, or of the majority of those that a stream is moved to.
func whole(ctx context.Context, m *Membership, running int) error {
	lacking := m.broker.Cluster.Lacking()
	for _, s := range m.ask(ctx) {
		maps.Copy(lacking, s.Lacks)
	}
	maps.DeleteFunc(lacking, func(_, what string) bool { return what == broker.CopiesOf(running, m.copies) })
	if len(lacking) == 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(lacking)))
	return salt.WithHint(fmt.Errorf("this member cannot leave now: %s without all copies, such as %s: %s", salt.Count(len(lacking), "stream"), first, lacking[first]),
		"wait until 'salt-run cluster.status' shows lacking: 0, then ask again; members that are lost are taken out first, with 'salt-run cluster.remove MEMBER'")
}

// serve registers the handlers for members that leave, and for those that do not after all.
func (l *leaving) serve(x *cluster.Exchange, log *slog.Logger) {
	x.Handle(kindLeave, func(_ context.Context, from string, _ []byte) (any, error) {
		if err := l.admit(from); err != nil {
			log.Warn("another member is to leave the cluster, and is refused for now", "member", from, "err", err)
			return nil, err
		}
		log.Warn("another member leaves the cluster", "member", from)
		return nil, nil
	})
	x.Handle(kindStay, func(_ context.Context, from string, _ []byte) (any, error) {
		log.Info("another member does not leave the cluster after all", "member", from)
		l.remove(from)
		return nil, nil
	})
}

// watch forgets members that have left, once they have stopped, until ctx ends. own forgets what is stored of
// one; where that fails, former has it.
func (l *leaving) watch(ctx context.Context, c *broker.Cluster, f *former, own func(ctx context.Context, member string) error, log *slog.Logger) {
	came := l.signal()
	for {
		names, late := l.names()
		for _, name := range late {
			log.Warn("a member that was to leave the cluster did not stop in time, or could not be forgotten: it counts for elections", "member", name, "hint", "ask it again, or when it is stopped: salt-run cluster.remove "+name)
		}
		for _, name := range names {
			l.forget(ctx, c, f, own, name, log)
		}
		var again <-chan time.Time
		if len(names) > 0 {
			again = time.After(leaveLook)
		}
		select {
		case <-came:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// forget forgets a member that has stopped. All others do that: the first one counts.
func (l *leaving) forget(ctx context.Context, c *broker.Cluster, f *former, own func(ctx context.Context, member string) error, name string, log *slog.Logger) {
	if slices.ContainsFunc(c.Members(), func(o member.Member) bool { return o.Name == name }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, forgetTime)
	defer cancel()
	if !l.forgetting(name, cancel) {
		return
	}
	err := c.Forget(ctx, name)
	if err != nil && ctx.Err() != nil && !l.has(name) {
		return // it does not leave after all
	}
	if err != nil && !errors.Is(err, broker.ErrNoMember) {
		log.Warn("a member that has left still counts for elections: it is tried again", "member", name, "err", err)
		return
	}
	if err := own(ctx, name); err != nil {
		log.Warn("something of a member that has left is still stored: it is tried again", "member", name, "err", err)
		f.add(name, "")
	}
	l.departed.add(name, time.Now())
	l.remove(name)
	log.Info("a member has left the cluster", "member", name)
}
