package membership

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/fleet"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/salt"
)

// CheckLeave is called at the start, before the store is opened. It refuses the start of a member that has left
// its cluster. One that was stopped while it left may still be a member, so it waits until the others
// say whether they count it. tell is called with what is waited for.
func (m *Membership) CheckLeave(ctx context.Context, tell func(string)) error {
	if m == nil {
		return nil
	}
	how, since, err := member.ReadLeave(m.mark)
	switch {
	case err != nil || how == member.Stays:
		return err
	case how == member.Left:
		return hasLeft(m.mark, since)
	}
	m.log.Warn("this member was stopped while it left its cluster: the others are asked whether they still count it", "member", m.name, "since", since)
	counted, err := interrupted{m}.counted(ctx, tell)
	if err != nil {
		return err
	}
	if !counted {
		if err := member.WriteLeave(m.mark, member.Left); err != nil {
			return err
		}
		m.log.Warn("this member has left its cluster: the others do not count it any more", "member", m.name)
		return hasLeft(m.mark, since)
	}
	m.log.Warn("this member has not left its cluster: the others still count it, and it is a member as before", "member", m.name, "hint", "to leave, run it again: salt-run cluster.leave")
	return member.WriteLeave(m.mark, member.Stays)
}

// hasLeft is why a member does not start that has left: the others do not count it, and would again.
func hasLeft(mark, since string) error {
	return config.Mistake(salt.WithHint(fmt.Errorf("this master has left its cluster at %s", since),
		fmt.Sprintf("to make it a member again, move %s away, since the other members have what is in it; to use it alone, take cluster_id and cluster_peers out of the configuration, too", filepath.Dir(mark))))
}

// interrupted is a member whose leave was interrupted, before it opens its store.
type interrupted struct{ *Membership }

// errInterrupted is why a member waits that was stopped while it left.
var errInterrupted = errors.New("this member was stopped while it left its cluster, and it is not known whether the others still count it")

// counted asks the others whether they count this member, until their leader answers. For that it is linked
// with them by a server without a store: with one it would take part in elections, and could count again.
func (m interrupted) counted(ctx context.Context, tell func(string)) (bool, error) {
	b, err := broker.Start(broker.Options{Name: m.name, Cluster: m.cluster, Admit: broker.Nobody, Log: m.log})
	if err != nil {
		return false, err
	}
	defer b.Stop()
	x := cluster.New(cluster.Options{Name: m.name, Conn: b.Conn(), Minions: &fleet.Elsewhere{Log: m.log}, Log: m.log})
	for warn := time.Now().Add(waitFirst); ; {
		linked, changed := b.Cluster.Linked()
		if counted, known := m.askOnce(ctx, x, linked); known {
			return counted, nil
		}
		if now := time.Now(); now.After(warn) {
			warn = now.Add(waitTell)
			m.log.Warn("the master waits for the other members of its cluster", "cluster", m.cluster.Rule.Card.Cluster, "member", m.name, "linked", len(linked), "err", errInterrupted,
				"hint", "start the others. If they wait for this one, or are of an earlier version, remove "+m.mark+": it is a member then")
			tell("waiting for the other members: " + errInterrupted.Error())
		}
		select {
		case <-changed:
		case <-time.After(askEvery):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// askOnce asks the members that are linked. Members that still count this one may have its request to leave, which is withdrawn: they
// would forget it when it is restarted. Whether it counts is certain only after that.
func (m interrupted) askOnce(ctx context.Context, x *cluster.Exchange, linked []member.Member) (counted, known bool) {
	counted, known = leaderSays(askLinked(ctx, x, linked, question{}))
	if !known || !counted {
		return counted, known
	}
	var names []string
	for _, one := range linked {
		names = append(names, one.Name)
	}
	m.stay(ctx, x.AskLinked, names)
	return leaderSays(askLinked(ctx, x, linked, question{}))
}

// leaderSays returns what the leader has answered, if it has.
func leaderSays(all map[string]said) (counted, known bool) {
	for _, s := range all {
		if s.Counts != nil {
			return *s.Counts, true
		}
	}
	return false, false
}
