package chaos

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

// eventsOfACommand are fired by one command.
const eventsOfACommand = 25

// round is some seconds of work, a fault among it, and what became of it.
type round struct {
	w      *world
	number int
	kind   *kind

	sync.Mutex
	sent     map[string][]sent // by the bus on which they are to be
	forgives *machine          // its outbox may lose what it tells
	reported *int              // how much that is
	jobs     []*task
	said     []string // what was wrong
	counts   counts
}

// task is a job that was started.
type task struct {
	jid     string
	at      *machine
	token   string
	targets []string
	queued  bool
}

func (r *round) tag() string { return fmt.Sprintf("chaos/%d/", r.number) }

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
		repeat(r.decide)
	}
	for _, u := range r.w.users {
		repeat(func(int) { r.login(u) })
	}
	repeat(func(n int) { r.job(n, false) })
	repeat(func(n int) { r.job(n, true) })
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
	stream := r.stream(at, what)
	var lines strings.Builder
	var batch []sent
	for i := range eventsOfACommand {
		e := id{stream, (command-1)*eventsOfACommand + i + 1}
		fmt.Fprintln(&lines, line(r.tag(), e))
		batch = append(batch, sent{id: e, command: command})
	}
	r.took(bus, batch, at.tool(lines.String(), "salt-event", args...))
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

// job starts a job on all minions that leaves a line in a file of each.
func (r *round) job(n int, queued bool) {
	at := r.w.next()
	k := &task{at: at, token: fmt.Sprintf("%d-%d-%t", r.number, n, queued), queued: queued}
	args := []string{"-L", r.w.targets(), "--show-jid", "--out", "json", "-t", "3"}
	for _, m := range r.w.minions {
		k.targets = append(k.targets, m.name)
	}
	if queued {
		args = append(args, "--queue", "30m")
	}
	command := "echo " + k.token + ` >>"$CHAOS_EFFECTS"`
	if n%3 == 0 {
		command += "; sleep 1" // so that some are under way when something happens
	}
	res := at.tool("", "salt", append(args, "cmd.run", command)...)
	if res.hung {
		r.wrong(&r.counts.hung, "salt hangs at %s: %s", at.name, res.err)
	}
	if found := jid.FindStringSubmatch(res.err); found != nil {
		k.jid = found[1]
	} else {
		r.w.note("a job without an id at %s: exit code %d: %s", at.name, res.code, res.err)
		<-time.After(look)
	}
	r.Lock()
	defer r.Unlock()
	r.jobs = append(r.jobs, k)
	if k.jid != "" {
		r.counts.jobs++
	}
}
