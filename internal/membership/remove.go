package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
)

// kindRemove is the request to refuse a removed member.
const kindRemove = "remove"

// forgetTime limits how long the members may take to forget one.
const forgetTime = 25 * time.Second

// RemoveMember implements runner.Cluster. The key is refused first: that must not depend on the
// other members.
func (m *Membership) RemoveMember(ctx context.Context, who string) (removed string, unaware []string, err error) {
	if m == nil {
		return "", nil, runner.ErrAlone
	}
	r, err := m.find(nameFor(who))
	if err != nil {
		return "", nil, err
	}
	if err := m.removals.add(r, "here"); err != nil {
		return "", nil, err
	}
	m.broker.Cluster.Cut()
	unaware = m.tellRemoval(ctx, r)
	ctx, cancel := context.WithTimeout(ctx, forgetTime)
	defer cancel()
	// It may be forgotten already: this is run again, or another member has learned of the removal.
	if err := m.broker.Cluster.Forget(ctx, r.Name); err != nil && !errors.Is(err, broker.ErrNoMember) {
		missing := ""
		if len(unaware) > 0 { // the caller gets the error alone
			missing = fmt.Sprintf(" (not told: %s)", strings.Join(unaware, ", "))
		}
		return r.Fingerprint, unaware, salt.WithHint(fmt.Errorf("the key of %s is refused from now on%s, but it still counts for elections: %w", r.Name, missing, err), votersHint(m, err))
	}
	m.log.Warn("a member was removed from the cluster", "member", r.Name, "fingerprint", r.Fingerprint)
	if err := m.own.Forget(ctx, r.Name); err != nil {
		m.log.Warn("something of a member that was removed is still stored: it is tried again", "member", r.Name, "err", err)
		m.former.add(r.Name, r.Fingerprint)
	}
	return r.Fingerprint, unaware, nil
}

// tellRemoval tells all other members that one was removed, and returns those that have not confirmed
// it: also those that do not run, since they would accept its key when they come back.
func (m *Membership) tellRemoval(ctx context.Context, r member.Removal) (unaware []string) {
	names := m.exchange.Others()
	for _, peer := range m.peers {
		names = append(names, nameOf(peer))
	}
	slices.Sort(names)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, name := range slices.Compact(names) {
		if name == r.Name || name == m.name {
			continue
		}
		wg.Go(func() {
			if err := m.exchange.Ask(ctx, name, kindRemove, r, nil); err != nil {
				m.log.Warn("a member does not know that another one was removed", "member", name, "removed", r.Name, "err", err)
				mu.Lock()
				defer mu.Unlock()
				unaware = append(unaware, name)
			}
		})
	}
	wg.Wait()
	slices.Sort(unaware)
	return unaware
}

// find returns which member is meant. Of one that does not run the key is known if it was linked with this
// one before, or is in the list of removed ones.
func (m *Membership) find(who string) (member.Removal, error) {
	if who == m.name || who == m.fingerprint() {
		return member.Removal{}, salt.WithHint(errors.New("this is the member that was asked: no member removes itself"), "ask another member")
	}
	removed, err := member.ReadRemovals(m.removals.path)
	if err != nil {
		return member.Removal{}, err
	}
	m.met.meet(m.broker.Cluster.Members())
	all, err := m.met.ever(removed.List)
	if err != nil { // the file, which cannot be read, is needed only for those that were not linked since the start
		all = m.met.since()
	}
	for _, one := range all {
		if one.Name == who || one.Fingerprint == who {
			return one, nil
		}
	}
	if err != nil {
		return member.Removal{}, err
	}
	return member.Removal{}, salt.WithHint(fmt.Errorf("no member %.80q was linked with this one", who),
		"'salt-run cluster.status' lists the names and addresses; of one that was never linked add a line 'FINGERPRINT member=NAME' to "+m.removals.path+" on each member, then run this again")
}

// nameFor returns the name of the member with this address, as cluster.status shows both, or who.
func nameFor(who string) string {
	if _, _, err := net.SplitHostPort(who); err != nil {
		return who
	}
	return nameOf(who)
}

// known returns the members that were linked since the start.
func (m *Membership) known() []member.Removal {
	m.met.meet(m.broker.Cluster.Members())
	return m.met.since()
}

// removeFor does what another member asks for: whoever is a member may do that, as they may do
// everything else.
func (m *Membership) removeFor(_ context.Context, from string, body []byte) (any, error) {
	var r member.Removal
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("unreadable removal of a member: %w", err)
	}
	if err := member.CheckFingerprint(r.Fingerprint); err != nil {
		return nil, err
	}
	if r.Fingerprint == m.fingerprint() {
		return nil, fmt.Errorf("member %s removes this one, which still runs", from)
	}
	m.log.Warn("another member has removed one from the cluster", "member", from, "removed", r.Name, "fingerprint", r.Fingerprint)
	if err := m.removals.add(r, "told by "+from); err != nil {
		return nil, err
	}
	m.broker.Cluster.Cut()
	return nil, nil
}

// StepDown implements runner.Cluster.
func (m *Membership) StepDown(ctx context.Context) (int, error) {
	if m == nil {
		return 0, runner.ErrAlone
	}
	m.journal.Yield()
	return m.broker.Cluster.StepDown(ctx)
}
