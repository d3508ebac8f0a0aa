package chaos

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// lastJobs is of how many jobs the states are asked for once more at the end.
const lastJobs = 60

// judgeHistory looks at the end whether all rounds still are as they were judged: nothing may get lost later, nor come, or run,
// for a second time, when machines return.
func (r *round) judgeHistory(past []*round) {
	if !r.check(r.w.back()) {
		return
	}
	damaged := false
	for _, p := range past {
		damaged = damaged || p.kind.after != nil
	}
	r.judgeCopies()
	r.judgeAgain(past, damaged)
	for _, p := range past {
		for _, l := range r.w.listeners {
			r.judgeHeard(p, l)
		}
	}
	r.judgeKnown(past, damaged)
	r.judgeEffects()
	r.judgeTokens()
	r.judgeDeletedTokens()
	switch {
	case damaged:
		r.check(r.judgeAll())
	case r.w.guest == nil: // the servers of a cluster compare their copies themselves
		r.verify("journal.verify")
	}
	r.verify("audit.verify")
	r.judgeDaemons()
}

// judgeAgain judges the events of all rounds once more, as each machine has them: each is read once. What is damaged is lost, which
// judgeAll looks at.
func (r *round) judgeAgain(past []*round, damaged bool) {
	count := 0
	for _, m := range r.w.machines() {
		shown, err := r.w.everything(m)
		if !r.check(err) {
			return
		}
		if r.w.guest != nil && r.w.isMaster(m) {
			// Up to the present any copy is read; who waits for what comes gets that of this member.
			count = max(count, shown.count)
			shown = r.w.copyOf(m, count)
		}
		for _, p := range past {
			f := judge(p.sent[r.w.shared(m)], shown.of(p.tag()))
			if damaged {
				f.lost = nil
			}
			r.events(p, m, f)
		}
	}
}

// judgeHeard looks once more what a durable listener has heard of an earlier round.
func (r *round) judgeHeard(p *round, l *listener) {
	for _, s := range missed(p.sent[r.w.master.name], l.heard(p.tag())) {
		if !p.found[l.name+" "+s] {
			r.wrong(&r.counts.unheard, "%s: %s", l.name, s)
		}
	}
	r.judgeOrder(p, l)
}

// copyOf is what the copy of a member has, until there is so much of it.
func (w *world) copyOf(m *machine, count int) *lines {
	if count == 0 {
		return newLines(m.member)
	}
	l, err := w.listen(m, historyTime+toolTime, "--since", "1", "--tag", chaosTag, "--count", fmt.Sprint(count), "-t", historyTime.String())
	if err != nil {
		w.note("the copy of %s: %v", m.name, err) // what it lacks is lost
	}
	return l
}

// judgeCopies waits until each member of a cluster counts, and all streams have all their copies.
func (r *round) judgeCopies() {
	if r.w.guest == nil {
		return
	}
	for _, m := range r.w.masters {
		var res result
		for end := time.Now().Add(wordTime); ; time.Sleep(10 * look) {
			var status struct {
				Lacking *int
				Stores  bool
			}
			res = m.tool("", "salt-run", "cluster.status", "--out", "json")
			if json.Unmarshal([]byte(res.out), &status) == nil && status.Stores && status.Lacking != nil && *status.Lacking == 0 {
				break
			}
			if time.Now().After(end) {
				r.wrong(&r.counts.differ, "copies are lacking at %s: exit code %d: %s%s", m.name, res.code, res.out, res.err)
				break
			}
		}
	}
}

// judgeKnown looks whether each master knows all jobs, and still says the same of the latest. Of what is damaged, a return may be lost.
func (r *round) judgeKnown(past []*round, damaged bool) {
	for _, m := range r.w.masters {
		var known map[string]any
		res := m.tool("", "salt-run", "jobs.list_jobs", "--out", "json")
		if err := json.Unmarshal([]byte(res.out), &known); res.code != 0 || err != nil {
			r.wrong(&r.counts.unknown, "jobs.list_jobs at %s: exit code %d: %v: %s", m.name, res.code, err, res.err)
			continue
		}
		for _, p := range past {
			for _, k := range p.jobs {
				if k.jid != "" && known[k.jid] == nil {
					r.wrong(&r.counts.unknown, "job %s (%s) of %s is not listed at %s", k.jid, k.token, k.at.name, m.name)
				}
			}
		}
	}
	if damaged {
		return
	}
	left := lastJobs
	for i := len(past) - 1; i >= 0 && left > 0; i-- {
		p := past[i]
		again := newRound(r.w, p.number, p.kind)
		again.touched, again.jobs = p.touched, p.jobs[:min(left, len(p.jobs))]
		again.judgeJobs()
		left -= len(again.jobs)
		r.counts.add(again.counts)
		r.said = append(r.said, again.said...)
	}
}

// verify has the masters check what they have stored.
func (r *round) verify(runner string) {
	var asking sync.WaitGroup
	for _, m := range r.w.masters {
		asking.Go(func() {
			if res := m.tool("", "salt-run", runner); res.code != 0 {
				r.wrong(&r.counts.lost, "%s at %s: exit code %d: %s%s", runner, m.name, res.code, res.out, res.err)
			}
		})
	}
	asking.Wait()
}
