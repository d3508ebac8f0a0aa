package backup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

func contains(list []string, one string) bool { return slices.Contains(list, one) }

// plan says what becomes of each stream of a backup, and which belong to nobody in the target.
func (m *Manifest) plan(to Target) (moves []move, left []string, err error) {
	from, err := m.whose(to)
	if err == nil {
		err = m.sameCluster(to)
	}
	if err != nil {
		return nil, nil, err
	}
	taken, former := map[string]bool{}, m.former(to)
	for _, s := range m.Streams {
		here, err := journal.PlaceOf(s.Name, s.Settings)
		if err != nil {
			return nil, nil, err
		}
		there, ok := m.place(here, from, to, former)
		if !ok || taken[there.Stream()] {
			left = append(left, s.Name)
			continue
		}
		taken[there.Stream()] = true
		moves = append(moves, move{s, here, there})
	}
	return moves, left, nil
}

// sameCluster refuses a backup of another cluster: its keys and tokens would be valid in this one. An older
// backup does not say of which it is.
func (m *Manifest) sameCluster(to Target) error {
	if m.Cluster == to.Cluster || m.Cluster == "" || to.Cluster == "" {
		return nil
	}
	return salt.WithHint(fmt.Errorf("the backup is of the cluster %.80q, and this master is a member of %.80q", m.Cluster, to.Cluster),
		fmt.Sprintf("its keys and tokens would be valid here. If this cluster had that name then, change \"cluster\" in %s of the backup", manifestFile))
}

// whose returns the member of the backup whose place the target takes.
func (m *Manifest) whose(to Target) (string, error) {
	members := m.Members()
	if m.Mode == ModeAlone {
		if to.From != "" {
			return "", fmt.Errorf("the backup is of a single master, not of a member %.80q", to.From)
		}
		return "", nil
	}
	from := to.From
	if from == "" && to.Member != "" {
		from = to.Member
	}
	if from == "" {
		from = m.Member
	}
	if !contains(members, from) {
		return "", salt.WithHint(fmt.Errorf("the backup has no journal of the member %q, only of %s", from, strings.Join(members, ", ")),
			"name the member whose place this master takes: salt-master --restore DIR --restore-as NAME")
	}
	return from, nil
}

// Members returns the members whose journals are in the backup of a cluster, sorted.
func (m *Manifest) Members() (names []string) {
	for _, s := range m.Streams {
		if p, err := journal.PlaceOf(s.Name, s.Settings); err == nil && p.Kind == journal.EventsKind && p.Member != "" {
			names = append(names, p.Member)
		}
	}
	slices.Sort(names)
	return names
}

// place returns what a stream becomes; false is nothing.
//
// Alone, the journal of another member is kept like the mirror of another master's journal, and
// its audit log is kept. Its tables are for itself only. In a cluster, another member restores
// what belongs to it, and keeper says who keeps what belongs to nobody there. What a single master has kept of others becomes that
// of members that are gone, see former.
func (m *Manifest) place(p journal.Place, from string, to Target, former map[string]string) (journal.Place, bool) {
	cluster := to.Member != ""
	switch {
	case !p.Own:
		return p, p.Member == ""
	case p.Member == from && p.Kind != journal.MirrorKind:
		p.Member = to.Member
		return p, true
	case m.Mode == ModeAlone && !cluster:
		return p, true
	case m.Mode == ModeAlone:
		keeps := p.Kind == journal.MirrorKind || p.Kind == journal.QueueKind
		p.Member = former[p.Member]
		if p.Kind == journal.MirrorKind {
			p.Kind = journal.EventsKind
		}
		return p, keeps && p.Member != ""
	case cluster:
		return p, from == to.Member && to.Member == m.keeper(to) && !contains(to.Members, p.Member)
	case p.Kind == journal.EventsKind:
		p.Kind = journal.MirrorKind
		return p, true
	}
	return p, p.Kind == journal.QueueKind
}

// former returns the names in the cluster to of those whose journals or audit logs a single master has kept, by their names in the
// backup. A member has its own name anew, with a journal of its own. One that gets no name is lacking.
func (m *Manifest) former(to Target) map[string]string {
	if m.Mode != ModeAlone || to.Member == "" || to.Hosted {
		return nil
	}
	var names []string
	for _, s := range m.Streams {
		if p, err := journal.PlaceOf(s.Name, s.Settings); err == nil && p.Member != "" && !contains(names, p.Member) {
			names = append(names, p.Member)
		}
	}
	slices.Sort(names)
	taken, former := slices.Concat(names, to.Members), map[string]string{}
	for _, name := range names {
		now := name
		for n := 1; contains(to.Members, now) || now != name && contains(taken, now); n++ {
			now = fmt.Sprint(name, "_old", n)
		}
		if bus.CheckJournalName(now) == nil {
			former[name] = now
			taken = append(taken, now)
		}
	}
	return former
}

// keeper returns the member of a cluster that keeps what belongs to none of them, such as the journal of one
// that has left: it is there once, and all know without asking who restores it. While a member has a new name
// it is nobody, since this member may restore it under that name.
func (m *Manifest) keeper(to Target) (name string) {
	names := m.Members()
	for _, one := range to.Members {
		if !contains(names, one) {
			return ""
		}
		if name == "" || one < name {
			name = one
		}
	}
	return name
}
