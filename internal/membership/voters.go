package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/salt"
)

const (
	// lookEvery is the pause between two looks at who counts for elections, and at the copies of streams.
	lookEvery = 5 * time.Second
	// foreignLooks is in how many looks in a row an identifier must be of no known member until it is forgotten, and
	// unsureLooks the same while a linked member has another list of the members that it has not told yet.
	foreignLooks = 4
	unsureLooks  = 60
	// leaderlessLooks take longer than an election.
	leaderlessLooks = 4
	// rescueTime is how long after the last change of the list of removed members a lost quorum is restored.
	rescueTime = time.Hour
	// maxForgotten is how many identifiers are forgotten after one look.
	maxForgotten = 64
)

// voters takes care that nobody counts for elections but the members, see broker.Voters.
//
// An identifier is only a hash of a name. So whoever counts is compared with the names in cluster_peers of this
// member and of the others, and with those that are linked: members that are away or are just joining have such a
// name. Only what was of none of them at several looks is forgotten.
type voters struct {
	every time.Duration // 0 means lookEvery

	throttle   logging.Throttle
	foreign    map[string]int // in how many looks in a row each identifier was of no member
	leaderless int            // in how many looks in a row there was no leader
}

// look returns which identifiers the leader is to forget, if it is this member. If those are why there is
// no leader, it returns how many members are to be enough for one; otherwise 0.
func (s *voters) look(v broker.Voters, sure bool) (forget []string, quorum int) {
	need := foreignLooks
	if !sure {
		need = unsureLooks
	}
	now := map[string]int{}
	var foreign []string
	for _, id := range v.Unknown {
		if now[id] = s.foreign[id] + 1; now[id] >= need {
			foreign = append(foreign, id)
		}
	}
	s.foreign = now
	if s.leaderless++; v.Leader {
		s.leaderless = 0
	}
	// What is not yet known to be foreign may be a member. Of two parts of the members at most one is more than half.
	most := (v.Known+len(v.Unknown)-len(foreign))/2 + 1
	if len(foreign) > 0 && s.leaderless >= leaderlessLooks && v.Reached >= most && v.Reached < v.Quorum {
		quorum = most
	}
	if v.Leads && v.Leader {
		forget = foreign[:min(len(foreign), maxForgotten)]
	}
	return forget, quorum
}

// watchVoters looks who counts for elections until ctx ends.
func watchVoters(ctx context.Context, m *Membership) {
	repeat(ctx, m.voters.every, func() {
		names, sure := membersOf(m)
		forget, quorum := m.voters.look(m.broker.Cluster.Voters(names), sure)
		for _, id := range forget {
			forgetForeign(ctx, m, id)
		}
		if quorum > 0 {
			restoreQuorum(ctx, m, quorum)
		}
	})
}

// repeat calls f once in each pause, 0 means lookEvery, until ctx ends.
func repeat(ctx context.Context, pause time.Duration, f func()) {
	tick := time.NewTicker(cmp.Or(pause, lookEvery))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f()
		case <-ctx.Done():
			return
		}
	}
}

func forgetForeign(ctx context.Context, m *Membership, id string) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	if err := m.broker.Cluster.ForgetUnknown(ctx, id); err != nil {
		m.voters.throttle.Log(m.log, slog.LevelWarn, "forget", 1, "an identifier that is of no member counts for elections, and is not forgotten: it is tried again", "identifier", id, "err", err)
		return
	}
	m.log.Warn("an identifier that is of no member counted for elections, and was forgotten", "identifier", id,
		"hint", "another member, or whoever has the key of one, has used it: a member that cluster_peers of no other one names, or a stolen key (doc/security.md)")
}

// restoreQuorum lets the members that are left elect a leader, who then forgets the identifiers that are of
// no member. It does so only after a removal: if cluster_peers were changed without one, the identifiers might be of
// members that run, and have a leader.
func restoreQuorum(ctx context.Context, m *Membership, quorum int) {
	info, err := os.Stat(m.removals.path)
	if err != nil || time.Since(info.ModTime()) > rescueTime {
		m.voters.throttle.Log(m.log, slog.LevelError, "leaderless", 1, "the members elect no leader, since most of those that count are of no member", "identifiers", len(m.voters.foreign),
			"hint", fmt.Sprintf("the key of a member may have been stolen: add its fingerprint to %s. If that is done, and no master of this cluster runs that cluster_peers does not name, 'touch' that file: within %s the members that are left then elect a leader", m.removals.path, rescueTime))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	if err := m.broker.Cluster.Rescue(ctx, quorum); err != nil {
		m.voters.throttle.Log(m.log, slog.LevelWarn, "rescue", 1, "the members elect no leader, since most of those that count are of no member", "identifiers", len(m.voters.foreign), "err", err)
		return
	}
	m.log.Warn("the members elected no leader, since most of those that counted are of no member: the members that are left are enough until these are forgotten", "identifiers", len(m.voters.foreign), "quorum", quorum)
}

// membersOf returns the names of all members as far as this one knows: those that it or another one has in
// cluster_peers, and those that are linked. sure is false while a linked one has another list, and has not told it.
// What a removed member has said does not count.
func membersOf(m *Membership) (names []string, sure bool) {
	for _, peer := range m.peers {
		names = append(names, nameOf(peer))
	}
	linked := m.broker.Cluster.Members()
	sure = true
	sources := slices.Clone(names)
	for _, one := range linked {
		names, sources = append(names, one.Name), append(sources, one.Name)
		if one.Peers != m.cluster.Rule.Card.Peers && len(m.heard.latest(one.Name).Peers) == 0 {
			sure = false
		}
	}
	removed, err := member.ReadRemovals(m.removals.path)
	if err != nil {
		return names, false
	}
	isGone := gone(removed, m.known(), m.name)
	for _, name := range sources {
		s := m.heard.latest(name)
		if isGone(name, s.Key) {
			continue
		}
		for _, peer := range s.Peers {
			names = append(names, nameOf(peer))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), sure
}

// votersHint is what to do when one that was removed is not forgotten, with err.
func votersHint(m *Membership, err error) string {
	if errors.Is(err, broker.ErrMinority) {
		return "run this again when most members are reached: 'salt-run cluster.status' shows why they are not"
	}
	names, _ := membersOf(m)
	if v := m.broker.Cluster.Voters(names); !v.Leader && len(v.Unknown) > 0 {
		return fmt.Sprintf("%s that are of no member count for elections, too. They are forgotten within a minute or two: run this again then", salt.Count(len(v.Unknown), "identifier"))
	}
	return "run this again when the members have a leader"
}

// during runs f until the function that it returns is called.
func during(ctx context.Context, f func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	return func() { cancel(); <-done }
}
