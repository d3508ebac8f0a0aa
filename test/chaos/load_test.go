package chaos

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// repeatTime is how long a command is repeated that fires under a name: longer than any fault lasts.
const repeatTime = 60 * time.Second

// eventsOfACommand are fired by one command.
const eventsOfACommand = 25

// round is some seconds of work, a fault among it, and what became of it.
type round struct {
	w       *world
	number  int
	kind    *kind
	long    bool              // others have the time to take over what a member had
	repeats bool              // some of what is not acknowledged is sent again: all daemons will be back
	since   map[string]string // where the buses ended before it
	full    *machine          // its disk is full for a while

	sync.Mutex
	touched   map[*machine]bool // what the fault is about
	fault     time.Time         // since when somebody is away; zero before and after it
	during    map[*machine]int  // what masters have acknowledged meanwhile
	sent      map[string][]sent // by the bus on which they are to be
	forgives  *machine          // its outbox may lose what it tells
	reported  *int              // how much that is
	jobs      []*task
	decisions []decision      // about the key of the guest
	found     map[string]bool // what was wrong with events, or is forgiven
	said      []string        // what was wrong
	counts    counts
}

func newRound(w *world, number int, k *kind) *round {
	return &round{w: w, number: number, kind: k, since: map[string]string{}, touched: map[*machine]bool{}, during: map[*machine]int{},
		sent: map[string][]sent{}, found: map[string]bool{}}
}

// task is a job that was started.
type task struct {
	jid     string
	at      *machine
	token   string
	targets []string
	queued  bool
	done    bool // the command said so of all targets
}

func (r *round) tag() string { return fmt.Sprintf("%s%d/", chaosTag, r.number) }

// stream names what one sender fires in this round.
func (r *round) stream(at *machine, what string) string {
	return fmt.Sprintf("%s-%s-%d", at.name, what, r.number)
}

// wrong takes down what is not as promised.
func (r *round) wrong(count *int, format string, args ...any) {
	r.Lock()
	defer r.Unlock()
	*count++
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// work runs commands of all sorts until stop is closed.
func (r *round) work(stop chan struct{}) *sync.WaitGroup {
	var all sync.WaitGroup
	repeat := func(f func(command int)) {
		all.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				default:
					f(n)
				}
			}
		})
	}
	for _, m := range r.w.masters {
		repeat(func(n int) { r.fire(m, m, "own", n, "fire", "--stdin", "-t", "5s") })
	}
	for _, m := range r.w.minions {
		repeat(func(n int) { r.fire(m, m, "own", n, "fire", "--bus", "minion", "--stdin", "-t", "5s") })
		repeat(func(n int) {
			r.fire(m, r.w.master, "forwarded", n, "fire", "--bus", "minion", "fire_master", "--stdin", "-t", "5s")
		})
		repeat(func(n int) { r.call(m, n) })
	}
	if r.w.guest != nil {
		for range deciders {
			repeat(r.decide)
		}
	}
	for _, u := range r.w.users {
		repeat(func(int) { r.login(u) })
	}
	repeat(func(n int) { r.job(n, false) })
	repeat(func(n int) { r.job(n, true) })
	if r.long {
		for _, m := range r.w.masters {
			all.Go(func() { r.start(m, "long-"+m.name, "; sleep 20") })
			all.Go(func() { r.start(m, "batch-"+m.name, "; sleep 6", "-b", "1") })
		}
	}
	return &all
}

// payload is the data of an event.
type payload struct {
	Stream string `json:"stream"`
	N      int    `json:"n"`
}

func line(tag string, i id) string {
	b, _ := json.Marshal(map[string]any{"tag": tag + i.stream, "data": payload{i.stream, i.n}}) // strings and numbers
	return string(b)
}

// fire hands some events to salt-event on one machine; they are to be on the bus of another.
func (r *round) fire(at, bus *machine, what string, command int, args ...string) {
	stream, count := r.stream(at, what), eventsOfACommand
	repeats := r.repeats && command%2 == 0
	if repeats && at != bus {
		count = 1 // several are not recognised when they come to an outbox again
	}
	var lines strings.Builder
	var batch []sent
	for i := range count {
		e := id{stream, (command-1)*eventsOfACommand + i + 1}
		fmt.Fprintln(&lines, line(r.tag(), e))
		batch = append(batch, sent{id: e, command: command})
	}
	if repeats {
		args = append(args, "--id", fmt.Sprintf("%s-%d", stream, command))
	}
	res := at.tool(lines.String(), "salt-event", args...)
	for end := time.Now().Add(repeatTime); repeats && res.code != 0 && !res.hung && time.Now().Before(end); {
		r.w.note("%s, command %d, is repeated: exit code %d: %s", stream, command, res.code, res.err)
		<-time.After(10 * look)
		res = at.tool(lines.String(), "salt-event", args...)
	}
	if res.code == 0 {
		r.goneOn(at)
	}
	r.took(bus, batch, res)
}

// call fires one event by salt-call.
func (r *round) call(at *machine, command int) {
	e := id{r.stream(at, "called"), command}
	data, _ := json.Marshal(payload{e.stream, e.n}) // a string and a number
	res := at.tool("", "salt-call", "--retcode-passthrough", "--out", "json", "event.fire_master", string(data), r.tag()+e.stream)
	if res.code == 0 && !strings.Contains(res.out, "true") {
		res.code = 1
	}
	r.took(r.w.master, []sent{{id: e, command: command}}, res)
}

// took takes down what was sent and what was said of it.
func (r *round) took(bus *machine, batch []sent, res result) {
	if res.hung {
		r.wrong(&r.counts.hung, "a command of %s hangs", batch[0].stream)
	}
	r.Lock()
	defer r.Unlock()
	for _, s := range batch {
		s.acked = res.code == 0
		r.sent[r.w.shared(bus)] = append(r.sent[r.w.shared(bus)], s)
		if s.acked {
			r.counts.acknowledged++
		} else {
			r.counts.unconfirmed++
		}
	}
	if res.code != 0 {
		r.w.note("%s: exit code %d: %s", batch[0].stream, res.code, res.err)
		<-time.After(look) // a daemon that is away says so at once
	}
}

var jid = regexp.MustCompile(`(?m)^jid: (\d{20})$`)

// job starts a job at some master. Some take a moment, so that they are under way when something happens, some are batches.
func (r *round) job(n int, queued bool) {
	then, args := "", []string(nil)
	if n%3 == 0 {
		then = "; sleep 1"
	}
	switch {
	case queued:
		args = []string{"--queue", "30m"}
	case n%4 == 0:
		args = []string{"-b", "1"}
	}
	r.start(r.w.next(), fmt.Sprintf("%d-%t", n, queued), then, args...)
}

// start starts a job on all minions that leaves a line in a file of each, and waits for it.
func (r *round) start(at *machine, name, then string, args ...string) {
	k := &task{at: at, token: fmt.Sprintf("%d-%s", r.number, name), queued: slices.Contains(args, "--queue")}
	for _, m := range r.w.minions {
		k.targets = append(k.targets, m.name)
	}
	args = append([]string{"-L", r.w.targets(), "--show-jid", "--out", "json", "-t", "3"}, args...)
	res := at.tool("", "salt", append(args, "cmd.run", "echo "+k.token+` >>"$CHAOS_EFFECTS"`+then)...)
	if res.hung {
		r.wrong(&r.counts.hung, "salt hangs at %s: %s", at.name, res.err)
	}
	if found := jid.FindStringSubmatch(res.err); found != nil {
		k.jid, k.done = found[1], res.code == 0
	} else {
		<-time.After(look)
	}
	r.w.note("job %s (%s) at %s: exit code %d: %s", k.jid, k.token, at.name, res.code, res.err)
	r.Lock()
	defer r.Unlock()
	r.jobs = append(r.jobs, k)
	if k.jid != "" {
		r.counts.jobs++
	}
	if k.done {
		r.counts.done++
	}
}
