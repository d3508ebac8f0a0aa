package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// plansTable holds the plans of unfinished jobs. In a cluster each member has one, named after it,
// with the plans of the jobs that it has accepted. A plan stays where it is when another member
// takes the job over.
const plansTable = "plans"

// plans are the tables with plans, of all members.
type plans struct {
	journal *journal.Journal
	own     *journal.Table // of this member, which leads it
	name    string         // of own

	mu     sync.Mutex
	tables map[string]*journal.Table // those that were opened, by name
	strays []string                  // those that are not of a member with a journal
}

// openPlans opens the table of this member.
func openPlans(ctx context.Context, j *journal.Journal) (*plans, error) {
	own, err := journal.LedTable(ctx, j, plansTable)
	if err != nil {
		return nil, err
	}
	return &plans{journal: j, own: own, name: own.Name(), tables: map[string]*journal.Table{own.Name(): own}}, nil
}

// planned is a plan as it is stored, and the table that has it.
type planned struct {
	journal.TableEntry
	table string
}

// table returns the table of this name, nil if there is none.
func (p *plans) table(ctx context.Context, name string) (*journal.Table, error) {
	p.mu.Lock()
	t := p.tables[name]
	p.mu.Unlock()
	if t != nil {
		return t, nil
	}
	t, err := journal.FindTable(ctx, p.journal, name)
	if t == nil || err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tables[name] = t
	return t, nil
}

// known returns the names of the tables to look for a job in: home, and those that may have it
// after a move of the store. Without home, all that are known.
func (p *plans) known(home string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if home == "" {
		return slices.Sorted(maps.Keys(p.tables))
	}
	return slices.Compact(append([]string{home}, p.strays...))
}

// refresh looks for tables of members that have joined.
func (p *plans) refresh(ctx context.Context) error {
	all, err := journal.LedTables(ctx, p.journal, plansTable)
	if err != nil {
		return err
	}
	var strays []string
	for name, used := range all {
		if !used && name != p.name {
			strays = append(strays, name)
		}
		if _, bad := p.table(ctx, name); bad != nil {
			err = errors.Join(err, bad)
		}
	}
	slices.Sort(strays)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strays = strays
	return err
}

// find returns the plan of a job, without a value if it is finished. It is looked for in the table
// home, or if that is not known in all of them: then it fails only if one that may have it does not
// answer, as during an election.
func (p *plans) find(ctx context.Context, jid salt.JID, home string) (planned, error) {
	type answer struct {
		planned
		err error
	}
	names := p.known(home)
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan answer, len(names))
	var asked sync.WaitGroup
	defer func() { cancel(); asked.Wait() }()
	for _, name := range names { // all at once: one of them may answer late
		asked.Go(func() {
			e, err := p.entry(ctx, name, jid)
			answers <- answer{planned{e, name}, err}
		})
	}
	var bad error
	for range names {
		a := <-answers
		if a.Value != nil {
			return a.planned, nil
		}
		bad = errors.Join(bad, a.err)
	}
	return planned{}, bad
}

// entry returns the plan of a job in the table of this name.
func (p *plans) entry(ctx context.Context, name string, jid salt.JID) (e journal.TableEntry, err error) {
	t, err := p.table(ctx, name)
	if t == nil || err != nil {
		return e, err
	}
	return t.Entry(ctx, string(jid))
}

// meet makes the tables of these members known.
func (p *plans) meet(ctx context.Context, members []string) error {
	for _, m := range members {
		if _, err := p.table(ctx, journal.LedTableName(plansTable, m)); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for each plan in all tables. It leaves out a table that does not answer, which is
// then the error.
func (p *plans) each(ctx context.Context, f func(planned)) error {
	bad := p.refresh(ctx)
	for _, name := range p.known("") {
		t, err := p.table(ctx, name)
		if err == nil {
			err = t.Each(ctx, func(jid string, b []byte) { f(planned{journal.TableEntry{Key: jid, Value: b}, name}) })
		}
		bad = errors.Join(bad, err)
	}
	return bad
}

// update stores a plan in place of the one at its revision, and returns the new one.
func (p *plans) update(ctx context.Context, table string, jid salt.JID, b []byte, revision uint64) (uint64, error) {
	t, err := p.table(ctx, table)
	if err == nil && t == nil {
		err = fmt.Errorf("there is no table %s", table)
	}
	if err != nil {
		return 0, err
	}
	return t.Update(ctx, string(jid), b, revision)
}

// replace stores the plan of a single master again, in its table.
func (p *plans) replace(ctx context.Context, of *plan, batch *job.Batch) error {
	b, err := of.encode(batch)
	if err != nil {
		return err
	}
	t, err := p.table(ctx, of.table)
	if err == nil && t == nil {
		err = fmt.Errorf("there is no table %s", of.table)
	}
	if err != nil {
		return err
	}
	return t.Put(ctx, string(of.Start.JID), b)
}

// remove removes a plan, unless there is a newer one than that of the given revision; 0 is a
// single master.
func (p *plans) remove(ctx context.Context, s stalePlan) error {
	if s.table == "" { // it was never stored
		return nil
	}
	t, err := p.table(ctx, s.table)
	switch {
	case err != nil || t == nil:
		return err
	case s.revision > 0:
		return t.RemoveAt(ctx, string(s.jid), s.revision)
	}
	return t.Remove(ctx, string(s.jid))
}
