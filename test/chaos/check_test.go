package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	workBefore = 400 * time.Millisecond // at least, before something happens
	workAfter  = 600 * time.Millisecond // and behind it
	wordTime   = 60 * time.Second       // until each job has its last word
)

// run is one round.
func (r *round) run(rnd *rand.Rand) {
	for _, m := range r.w.buses() {
		r.since[m.name] = r.w.end(m)
	}
	r.w.note("round %d: %s, long: %t", r.number, r.kind.name, r.long)
	r.repeats = true
	stop := make(chan struct{})
	working := r.work(stop)
	pause(rnd, workBefore, 3*workBefore)
	if r.kind.during != nil {
		r.check(r.kind.during(r, rnd))
	}
	pause(rnd, workAfter, 2*workAfter)
	close(stop)
	r.finish(working)
	r.w.note("round %d: the work is done", r.number)
	if r.check(r.w.back()) && r.check(r.mark()) {
		r.judgeEvents()
		r.judgeOthers()
		for _, l := range r.w.listeners {
			r.judgeListener(l)
		}
		r.judgeJobs()
		r.judgeTokens()
		r.judgeKeys()
	}
	if r.kind.after != nil && r.check(r.kind.after(r, rnd)) && r.check(r.w.back()) {
		r.check(r.judgeAll())
	}
	r.judgeDaemons()
}

// judgeDaemons looks whether daemons have ended by themselves, or have failed in a way that none may. Where
// the disk is full they may end.
func (r *round) judgeDaemons() {
	for _, m := range r.w.all() {
		deaths, crashes := m.news()
		if deaths > 0 && m != r.full {
			r.wrong(&r.counts.deaths, "%s ended by itself\n%s", m.name, m.said())
		}
		for _, s := range crashes {
			r.wrong(&r.counts.deaths, "%s has written: %s", m.name, s)
		}
	}
	if r.w.guest != nil && !r.w.guest.running() {
		r.check(r.w.guest.launch())
	}
}

// finish waits until the work is done. Daemons that end by themselves are started again meanwhile: some of it is repeated until they
// are back.
func (r *round) finish(working *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		working.Wait()
	}()
	for {
		select {
		case <-done:
			return
		case <-time.After(10 * look):
			if !r.check(healAll(r.w.machines())) {
				<-done
				return
			}
		}
	}
}

// check takes down what the round cannot go on after.
func (r *round) check(err error) bool {
	if err != nil {
		r.wrong(&r.counts.broken, "%v", err)
	}
	return err == nil
}

// mark waits until the outboxes of all minions, and the listener, are at the end.
func (r *round) mark() error {
	for _, m := range r.w.minions {
		e := id{r.stream(m, "end"), 1}
		if res := m.tool(line(r.tag(), e), "salt-event", "fire", "--bus", "minion", "fire_master", "--stdin", "-t", "60s"); res.code != 0 {
			return fmt.Errorf("the end of %s: exit code %d: %s", m.name, res.code, res.err)
		}
		at, tag := r.w.next(), r.tag()+e.stream
		if res := at.tool("", "salt-event", "listen", "--since", r.since[r.w.master.name], "--tag", tag, "--count", "1", "-t", "60s"); res.code != 0 {
			r.explain(tag)
			return fmt.Errorf("the end of the outbox of %s does not arrive at %s: exit code %d: %s", m.name, at.name, res.code, res.err)
		}
	}
	return nil
}

// explain notes where an event is that did not arrive, and what the daemons do while it is asked for.
func (r *round) explain(tag string) {
	ask := func(m *machine, args ...string) {
		res := m.tool("", args[0], args[1:]...)
		r.w.note("%s at %s: exit code %d: %s%s", strings.Join(args, " "), m.name, res.code, res.out, res.err)
	}
	for _, m := range r.w.masters {
		done := make(chan struct{})
		go func() {
			defer close(done)
			ask(m, "salt-event", "listen", "--since", "1", "--tag", tag, "--count", "1", "-t", "10s")
		}()
		select {
		case <-done:
		case <-time.After(7 * time.Second):
			r.dump(m)
			<-done
		}
		ask(m, "salt-event", "listen", "--since", "1", "--tag", tag, "--until-end", "-t", "10s")
		ask(m, "salt-event", "stat")
		ask(m, "salt-run", "cluster.status")
	}
	for _, m := range r.w.machines() {
		if !r.w.isMaster(m) {
			ask(m, "salt-event", "stat", "--bus", "minion")
		}
		r.dump(m)
	}
}

// dump notes what the goroutines of a daemon do.
func (r *round) dump(m *machine) {
	_ = m.daemon.Process.Signal(syscall.SIGUSR1) // it may have ended
	<-time.After(time.Second)                    // it is written
	files, _ := filepath.Glob(filepath.Join(m.disk.dir, "cache", "goroutines", "*"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		r.w.note("%s: %s\n%s", m.name, f, text)
	}
}

// judgeEvents looks at each bus, as each master shows it.
func (r *round) judgeEvents() {
	shown := r.judgeMembers()
	for _, m := range r.w.machines() {
		list, ok := shown[m]
		if !ok {
			var err error
			if list, err = r.w.shown(m, r.since[r.w.shared(m)], r.tag()); !r.check(err) {
				return
			}
		}
		r.sequences(m, list)
		f := judge(r.sent[r.w.shared(m)], list)
		for _, s := range f.lost {
			r.found[r.w.shared(m)+" lost "+s] = true
		}
		f.lost = r.forgive(m, f.lost)
		r.events(r, m, f)
	}
}

// events takes down what is wrong with the events of a round that was not found before.
func (r *round) events(of *round, at *machine, f findings) {
	for _, c := range []struct {
		count *int
		what  string
		list  []string
	}{{&r.counts.lost, "lost", f.lost}, {&r.counts.twice, "twice", f.twice}, {&r.counts.disorder, "out of order", f.disorder}} {
		for _, s := range c.list {
			if of == r || !of.found[r.w.shared(at)+" "+c.what+" "+s] {
				r.wrong(c.count, "bus of %s: %s: %s", at.name, c.what, s)
			}
			of.found[r.w.shared(at)+" "+c.what+" "+s] = true
		}
	}
}

func (r *round) sequences(m *machine, shown []stored) {
	journals := map[string][]stored{}
	for _, e := range shown {
		journals[r.w.shared(m)+of(e.journal)] = append(journals[r.w.shared(m)+of(e.journal)], e)
	}
	for name, events := range journals {
		if r.w.sequences[name] == nil {
			r.w.sequences[name] = sequences{}
		}
		for _, s := range r.w.sequences[name].see(events) {
			r.wrong(&r.counts.reused, "bus of %s: %s", name, s)
		}
	}
}

// forgive leaves out what the damaged outbox of a minion has lost and reported to the master.
func (r *round) forgive(bus *machine, lost []string) []string {
	if r.forgives == nil || bus != r.w.master || len(lost) == 0 {
		return lost
	}
	if r.reported == nil {
		total := r.w.outboxLosses(r.forgives)
		reported := total - r.forgives.outboxLost
		r.forgives.outboxLost, r.reported = total, &reported
		r.w.note("the outbox of %s tells %d losses", r.forgives.name, reported)
	}
	rest := slices.DeleteFunc(slices.Clone(lost), func(s string) bool { return strings.HasPrefix(s, r.forgives.name+"-") })
	// A message that cannot be read is reported as one, whatever events of one command were in it.
	if len(lost)-len(rest) > *r.reported*eventsOfACommand {
		return lost
	}
	return rest
}

// outboxLosses is how many messages the outbox of a minion has reported as lost, ever.
func (w *world) outboxLosses(m *machine) int {
	res := w.master.tool("", "salt-event", "listen", "--since", "1", "--until-end", "--tag", "salt/minion/"+m.name+"/outbox/lost", "--format", "raw")
	total := 0
	for d := json.NewDecoder(strings.NewReader(res.out)); d.More(); {
		var l struct{ Data struct{ Total int } }
		if d.Decode(&l) != nil {
			break
		}
		total = max(total, l.Data.Total)
	}
	return total
}

// judgeListener waits until a durable listener has heard the ends, and looks what it has not heard.
func (r *round) judgeListener(l *listener) {
	if l.over() {
		r.wrong(&r.counts.unheard, "the durable listener %s ended by itself at %s: %s: %s", l.name, l.at.name, l.cmd.ProcessState, l.last())
		if !r.check(l.start()) {
			return
		}
	}
	defer r.judgeOrder(r, l)
	for end := time.Now().Add(wordTime); ; time.Sleep(5 * look) {
		gone := missed(r.sent[r.w.master.name], l.heard(r.tag()))
		left := r.forgive(r.w.master, gone)
		if len(left) > 0 && time.Now().Before(end) {
			continue
		}
		for _, s := range gone {
			r.found[l.name+" "+s] = true
		}
		for _, s := range left {
			r.wrong(&r.counts.unheard, "%s: %s", l.name, s)
		}
		return
	}
}

// judgeOrder looks whether each life of a listener has heard each sender of a round in order, and once.
func (r *round) judgeOrder(of *round, l *listener) {
	for i, one := range l.lives {
		f := judge(of.sent[r.w.master.name], one.heard(of.tag()))
		for _, s := range append(f.twice, f.disorder...) {
			key := fmt.Sprint(l.name, i, s)
			if !of.found[key] {
				r.wrong(&r.counts.heardWrong, "%s at %s: %s", l.name, one.member, s)
			}
			of.found[key] = true
		}
	}
}

// judgeJobs asks what became of each job and compares that with what it did.
func (r *round) judgeJobs() {
	ran := map[string]map[string]int{}
	for _, m := range r.w.minions {
		ran[m.name] = m.effectsByToken()
	}
	words, unknown := r.words(ran)
	for _, s := range unknown {
		r.wrong(&r.counts.unknown, "%s", s)
	}
	for _, s := range words {
		r.wrong(&r.counts.wrongWords, "%s", s)
	}
	r.judgeEffects()
}

// judgeEffects looks whether a job has ever run twice, also one of an earlier round.
func (r *round) judgeEffects() {
	for _, m := range r.w.minions {
		for token, n := range m.effectsByToken() {
			if n > max(1, m.repeated[token]) {
				m.repeated[token] = n
				r.wrong(&r.counts.ranTwice, "the job with the token %s ran %d times on %s", token, n, m.name)
			}
		}
	}
}

// words waits until each job has its last word, and returns those that are untrue, and which
// jobs are not known.
func (r *round) words(ran map[string]map[string]int) (untrue, unknown []string) {
	open := slices.DeleteFunc(slices.Clone(r.jobs), func(k *task) bool { return k.jid == "" })
	for end := time.Now().Add(wordTime); len(open) > 0; time.Sleep(10 * look) {
		last := time.Now().After(end)
		for _, m := range r.w.minions {
			ran[m.name] = m.effectsByToken()
		}
		open = slices.DeleteFunc(open, func(k *task) bool {
			u, w := r.wordsOf(k, ran)
			if last {
				unknown, untrue = append(unknown, u...), append(untrue, w...)
			}
			return len(u)+len(w) == 0
		})
		if last {
			return untrue, unknown
		}
	}
	return nil, nil
}

// wordsOf asks all masters about a job. They must say the same.
func (r *round) wordsOf(k *task, ran map[string]map[string]int) (unknown, untrue []string) {
	said := make([]map[string]state, len(r.w.masters))
	errs := make([]error, len(r.w.masters))
	var asking sync.WaitGroup
	for i, m := range r.w.masters {
		asking.Go(func() { said[i], errs[i] = r.states(m, k.jid) })
	}
	asking.Wait()
	for i, m := range r.w.masters {
		if errs[i] != nil {
			unknown = append(unknown, errs[i].Error())
			continue
		}
		for _, s := range r.untrue(k, said[i], ran) {
			untrue = append(untrue, s+of(m.member))
		}
		if !maps.Equal(said[i], said[0]) {
			untrue = append(untrue, fmt.Sprintf("job %s (%s): %s says %v, %s %v", k.jid, k.token, m.name, said[i], r.w.master.name, said[0]))
		}
	}
	return unknown, untrue
}

// state is that of a job on a minion.
type state struct {
	State, Text string
	returned    bool
}

// states are what jobs.list_job says at a master.
func (r *round) states(at *machine, jid string) (map[string]state, error) {
	res := at.tool("", "salt-run", "jobs.list_job", jid, "--out", "json")
	var job struct {
		JID    string
		States map[string]state
		Result map[string]any
	}
	if err := json.Unmarshal([]byte(res.out), &job); res.code != 0 || err != nil || job.JID != jid {
		return nil, fmt.Errorf("job %s is not known at %s: exit code %d: %s%s", jid, at.name, res.code, res.out, res.err)
	}
	for name, s := range job.States {
		_, s.returned = job.Result[name]
		job.States[name] = s
	}
	return job.States, nil
}

func (r *round) untrue(k *task, states map[string]state, ran map[string]map[string]int) []string {
	var out []string
	for _, m := range r.w.minions {
		name, s := m.name, states[m.name]
		w := word{s.State, s.Text, s.returned, k.queued, k.done, r.touched[m], ran[name][k.token]}
		if s := w.untrue(); s != "" {
			out = append(out, fmt.Sprintf("job %s (%s) of %s on %s: %s", k.jid, k.token, k.at.name, name, s))
		}
	}
	return out
}

// effectsByToken are the lines that jobs have left on a minion.
func (m *machine) effectsByToken() map[string]int {
	out := map[string]int{}
	b, _ := os.ReadFile(m.effects) // there is none before the first job
	for l := range strings.Lines(string(b)) {
		out[strings.TrimSpace(l)]++
	}
	return out
}

// judgeAll compares all that a bus ever showed with what it shows now: what is missing it must
// have reported, with its sequence.
func (r *round) judgeAll() error {
	for _, m := range r.w.machines() {
		shown, err := r.w.everything(m)
		if err != nil {
			return err
		}
		reported, err := r.w.losses(m)
		if err != nil {
			return err
		}
		there := map[int]bool{}
		for _, list := range shown.events {
			r.sequences(m, list)
			for _, e := range list {
				there[e.seq] = true
			}
		}
		for _, seq := range slices.Sorted(maps.Keys(r.w.sequences[m.name])) {
			if !there[seq] && !slices.ContainsFunc(reported, func(l loss) bool { return l.From <= seq && seq <= l.To }) {
				r.wrong(&r.counts.lost, "bus of %s: sequence %d is gone, and it is not reported", m.name, seq)
			}
		}
	}
	return nil
}
