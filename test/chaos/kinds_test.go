package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// kind is a way to treat the machines badly.
type kind struct {
	name  string
	lab   bool // it needs networks of their own
	disks bool // or disks
	// can reports what else is missing; nil for a kind that needs nothing else.
	can func(w *world) error
	// during happens while the work goes on, after when it is over and was judged.
	during, after func(r *round, rnd *rand.Rand) error
}

// kinds are all of them, sorted.
var kinds = []kind{
	{name: "cut", lab: true, during: cut},
	{name: "damage master", after: damaged((*round).master)},
	{name: "damage minion", after: damaged((*round).minion)},
	{name: "damage outbox", during: damagedOutbox},
	{name: "full master", disks: true, during: full((*round).master)},
	{name: "full minion", disks: true, during: full((*round).minion)},
	{name: "kill all", during: killAll},
	{name: "kill listener", during: killListener},
	{name: "kill master", during: ended((*round).master, syscall.SIGKILL)},
	{name: "kill minion", during: ended((*round).minion, syscall.SIGKILL)},
	{name: "power all", disks: true, during: powerAll},
	{name: "power master", disks: true, during: power((*round).master)},
	{name: "power minion", disks: true, during: power((*round).minion)},
	{name: "restart master", during: ended((*round).master, syscall.SIGTERM)},
	{name: "restart minion", during: ended((*round).minion, syscall.SIGTERM)},
	{name: "stop master", during: stopped((*round).master)},
	{name: "stop minion", during: stopped((*round).minion)},
}

// choice chooses a machine.
type choice func(*round, *rand.Rand) *machine

func (r *round) master(rnd *rand.Rand) *machine {
	return r.touch(r.w.masters[rnd.IntN(len(r.w.masters))])
}

func (r *round) minion(rnd *rand.Rand) *machine {
	return r.touch(r.w.minions[rnd.IntN(len(r.w.minions))])
}

// touch takes down that the fault is about a machine.
func (r *round) touch(m *machine) *machine {
	r.Lock()
	defer r.Unlock()
	r.touched[m] = true
	return m
}

// touchAll does the same for all machines.
func (r *round) touchAll() []*machine {
	for _, m := range r.w.machines() {
		r.touch(m)
	}
	return r.w.machines()
}

// pause lets a random time pass, so that what follows falls into any moment of the work. It
// waits for nothing.
func pause(rnd *rand.Rand, least, most time.Duration) {
	<-time.After(least + time.Duration(rnd.Int64N(int64(most-least))))
}

// ended ends a daemon by a signal and starts it a moment later.
func ended(who choice, s syscall.Signal) func(*round, *rand.Rand) error {
	return func(r *round, rnd *rand.Rand) error {
		m := who(r, rnd)
		if err := m.end(s); err != nil {
			return err
		}
		r.away(rnd, 0, time.Second)
		return m.start()
	}
}

func killAll(r *round, rnd *rand.Rand) error {
	errs := []error{endAll(r.touchAll(), syscall.SIGKILL)}
	pause(rnd, 0, time.Second)
	return errors.Join(append(errs, startAll(r.w.machines()))...)
}

func killListener(r *round, rnd *rand.Rand) error {
	l := r.w.listeners[rnd.IntN(len(r.w.listeners))]
	l.kill()
	pause(rnd, 0, time.Second)
	return l.start()
}

func stopped(who choice) func(*round, *rand.Rand) error {
	return func(r *round, rnd *rand.Rand) error {
		m := who(r, rnd)
		m.signal(syscall.SIGSTOP)
		r.away(rnd, time.Second, 7*time.Second)
		m.signal(syscall.SIGCONT)
		return nil
	}
}

// cut drops all packets of a minion, or those of one direction.
func cut(r *round, rnd *rand.Rand) error {
	m := r.minion(rnd)
	m.host.Cut(ways(rnd)...)
	r.away(rnd, time.Second, 8*time.Second)
	m.host.Mend()
	return nil
}

// full leaves no room on a disk for a while.
func full(who choice) func(*round, *rand.Rand) error {
	return func(r *round, rnd *rand.Rand) error {
		m := who(r, rnd)
		r.full = m
		if err := m.disk.fill(); err != nil {
			return err
		}
		r.away(rnd, time.Second, 9*time.Second)
		return errors.Join(m.disk.free(), m.heal())
	}
}

func power(who choice) func(*round, *rand.Rand) error {
	return func(r *round, rnd *rand.Rand) error {
		m := who(r, rnd)
		if err := errors.Join(m.end(syscall.SIGKILL), m.disk.cut()); err != nil {
			return err
		}
		r.away(rnd, 0, time.Second)
		return m.start()
	}
}

func powerAll(r *round, _ *rand.Rand) error {
	errs := []error{endAll(r.touchAll(), syscall.SIGKILL)}
	for _, m := range r.w.machines() {
		errs = append(errs, m.disk.cut())
	}
	return errors.Join(append(errs, startAll(r.w.machines()))...)
}

// endAll ends daemons by a signal, all at the same time.
func endAll(list []*machine, s syscall.Signal) error {
	errs := make([]error, len(list))
	var ending sync.WaitGroup
	for i, m := range list {
		ending.Go(func() { errs[i] = m.end(s) })
	}
	ending.Wait()
	return errors.Join(errs...)
}

// blocks are the files of a stream, below a disk.
func (m *machine) blocks(stream string) string {
	return filepath.Join("cache", "journal", "jetstream", "SALT", "streams", stream, "msgs", "*.blk")
}

// damaged changes a byte of a bus that has been judged. What is missing then must be reported,
// with its sequences, and nothing else may be missing.
func damaged(who choice) func(*round, *rand.Rand) error {
	return func(r *round, rnd *rand.Rand) error {
		m := who(r, rnd)
		if err := m.end(syscall.SIGKILL); err != nil {
			return err
		}
		what, err := m.disk.damage(rnd, m.blocks("EVENTS"))
		if err != nil {
			return err
		}
		r.w.note("damaged %s", what)
		return m.start()
	}
}

// damagedOutbox changes a byte of what waits for the master. What does not arrive must be reported.
func damagedOutbox(r *round, rnd *rand.Rand) error {
	m := r.minion(rnd)
	if err := r.w.master.end(syscall.SIGTERM); err != nil {
		return err
	}
	pause(rnd, time.Second, 2*time.Second)
	if err := m.end(syscall.SIGKILL); err != nil {
		return err
	}
	what, err := m.disk.damage(rnd, m.blocks("OUTBOX"))
	if err != nil {
		return err
	}
	r.w.note("damaged %s", what)
	r.forgives = m
	return errors.Join(m.start(), r.w.master.start())
}

// possible are the kinds whose names begin so and for which this world has what they need.
func (w *world) possible(prefix string) ([]*kind, error) {
	var out []*kind
	all := w.kinds()
	for i, k := range all {
		if strings.HasPrefix(k.name, prefix) && k.lacks(w) == nil {
			out = append(out, &all[i])
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no kind that is possible here begins with %q", prefix)
	}
	return out, nil
}

func (w *world) kinds() []kind {
	if len(w.masters) > 1 {
		return memberKinds
	}
	return kinds
}

// lacks says what this world does not have that the kind needs.
func (k *kind) lacks(w *world) error {
	switch {
	case k.lab && !w.lab:
		return errors.New("no networks of their own")
	case k.disks && !w.disks:
		return errors.New("no disks of their own")
	case k.can != nil:
		return k.can(w)
	}
	return nil
}

// without says which kinds are not possible in this world, and why.
func (w *world) without() []string {
	var out []string
	for _, k := range w.kinds() {
		if err := k.lacks(w); err != nil {
			out = append(out, fmt.Sprintf("%s: %v", k.name, err))
		}
	}
	return out
}
