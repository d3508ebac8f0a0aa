package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/brinebus/brine/test/netlab"
	"github.com/brinebus/brine/test/wrongclock"
)

// memberKinds are what is done to the members of a cluster, sorted.
var memberKinds = []kind{
	{name: "clock member", can: canStep, during: stepped((*round).master)},
	{name: "clock minion", can: canStep, during: stepped((*round).minion)},
	{name: "cut member", lab: true, during: cutMember},
	{name: "cut member one way", lab: true, during: cutOneWay},
	{name: "cut minion", lab: true, during: cut},
	{name: "cut two members", lab: true, during: cutTwo},
	{name: "full member", disks: true, during: full((*round).master)},
	{name: "kill all", during: killAll},
	{name: "kill listener", during: killListener},
	{name: "kill member", during: ended((*round).master, syscall.SIGKILL)},
	{name: "kill minion", during: ended((*round).minion, syscall.SIGKILL)},
	{name: "kill two members", during: killTwo},
	{name: "lossy link", lab: true, during: lossy},
	{name: "move listener", during: moveListener},
	{name: "narrow link", lab: true, can: hasQueue(narrow), during: queued(narrow)},
	{name: "power all", disks: true, during: powerAll},
	{name: "power member", disks: true, during: power((*round).master)},
	{name: "restart member", during: ended((*round).master, syscall.SIGTERM)},
	{name: "slow link", lab: true, can: canSlow, during: slowMember},
	{name: "slow two members", lab: true, can: canSlow, during: slowTwo},
	{name: "stop member", during: stopMember},
}

// faultTime is how long the faults last at most that nobody is told of: longer than it takes to
// elect another leader.
const faultTime = 14 * time.Second

// In some rounds a member is away, or nobody hears of it, until others have taken over what it had:
// that takes 15 seconds, and some more for them to begin.
const (
	takenOver = 17 * time.Second
	longest   = 30 * time.Second
)

// away waits while what the fault is about is away.
func (r *round) away(rnd *rand.Rand, least, most time.Duration) {
	if r.long {
		least, most = takenOver, longest
	}
	r.setFault(time.Now())
	pause(rnd, least, most)
	r.setFault(time.Time{})
}

func (r *round) setFault(t time.Time) {
	r.Lock()
	defer r.Unlock()
	r.fault = t
}

// goneOn takes down that a member has acknowledged something during the fault.
func (r *round) goneOn(at *machine) {
	r.Lock()
	defer r.Unlock()
	if !r.fault.IsZero() && time.Since(r.fault) > 2*time.Second { // before that it may have been asked earlier
		r.during[at]++
	}
}

// judgeOthers looks whether the other members have gone on while one was away for long.
func (r *round) judgeOthers() {
	var others []*machine
	for _, m := range r.w.masters {
		if !r.touched[m] {
			others = append(others, m)
		}
	}
	if !r.long || r.kind.during == nil || len(others) != len(r.w.masters)-1 {
		return
	}
	for _, m := range others {
		if r.during[m] == 0 {
			r.wrong(&r.counts.stalled, "%s has acknowledged no event while another member was away", m.name)
		}
	}
}

// two are two different members.
func (r *round) two(rnd *rand.Rand) (a, b *machine) {
	p := rnd.Perm(len(r.w.masters))
	return r.touch(r.w.masters[p[0]]), r.touch(r.w.masters[p[1]])
}

// cutMember drops all packets of a member.
func cutMember(r *round, rnd *rand.Rand) error {
	return cutOff(r, rnd, netlab.Incoming, netlab.Outgoing)
}

// cutOneWay drops those of one direction.
func cutOneWay(r *round, rnd *rand.Rand) error {
	return cutOff(r, rnd, []string{netlab.Incoming, netlab.Outgoing}[rnd.IntN(2)])
}

func cutOff(r *round, rnd *rand.Rand, ways ...string) error {
	m := r.master(rnd)
	m.host.Cut(ways...)
	r.away(rnd, time.Second, faultTime)
	m.host.Mend()
	return nil
}

func ways(rnd *rand.Rand) []string {
	all := [][]string{{netlab.Incoming}, {netlab.Outgoing}, {netlab.Incoming, netlab.Outgoing}}
	return all[rnd.IntN(len(all))]
}

// cutTwo drops the packets between two members, who both reach the third one and the minions.
func cutTwo(r *round, rnd *rand.Rand) error {
	a, b := r.two(rnd)
	a.host.CutPeer(b.address, ways(rnd)...)
	r.away(rnd, time.Second, faultTime)
	a.host.Mend()
	return nil
}

// killTwo leaves one member of three, which cannot store anything, or three of five, which can.
func killTwo(r *round, rnd *rand.Rand) error {
	a, b := r.two(rnd)
	err := endAll([]*machine{a, b}, syscall.SIGKILL)
	r.away(rnd, 0, faultTime/2)
	return errors.Join(err, startAll([]*machine{a, b}))
}

// moveListener ends a durable listener and starts it at another member.
func moveListener(r *round, rnd *rand.Rand) error {
	l := r.w.listeners[rnd.IntN(len(r.w.listeners))]
	l.kill()
	pause(rnd, 0, time.Second)
	for was := l.at; l.at == was; {
		l.at = r.w.masters[rnd.IntN(len(r.w.masters))]
	}
	return l.start()
}

func stopMember(r *round, rnd *rand.Rand) error {
	m := r.master(rnd)
	m.signal(syscall.SIGSTOP)
	r.away(rnd, time.Second, faultTime)
	m.signal(syscall.SIGCONT)
	return nil
}

// lossy loses some of the packets for one member.
func lossy(r *round, rnd *rand.Rand) error {
	m := r.master(rnd)
	m.host.Lose(2 + rnd.IntN(20))
	r.away(rnd, time.Second, faultTime)
	m.host.Mend()
	return nil
}

// narrow is what tc makes of a cable.
const narrow = "tbf rate 256kbit burst 8k latency 800ms"

func hasQueue(discipline string) func(*world) error {
	return func(w *world) error {
		if err := w.master.host.Queue(discipline); err != nil {
			return fmt.Errorf("no cable with %q here: %w", discipline, err)
		}
		w.master.host.Unqueue()
		return nil
	}
}

func queued(discipline string) func(*round, *rand.Rand) error {
	return func(r *round, rnd *rand.Rand) error {
		m := r.master(rnd)
		if err := m.host.Queue(discipline); err != nil {
			return err
		}
		r.away(rnd, time.Second, faultTime)
		m.host.Unqueue()
		return nil
	}
}

// delay is some time for packets, with a jitter of half of it. Two of the longest make a round trip of nearly a second.
func delay(rnd *rand.Rand) netlab.Delay {
	d := 20*time.Millisecond + time.Duration(rnd.Int64N(int64(280*time.Millisecond)))
	return netlab.Delay{Base: d, Jitter: d / 2}
}

func canSlow(w *world) error {
	if err := w.master.host.Slow(netlab.Delay{}); err != nil {
		return fmt.Errorf("no slow cable here: %w", err)
	}
	w.master.host.Unslow()
	return nil
}

// slowMember delays all packets of a member.
func slowMember(r *round, rnd *rand.Rand) error {
	m, d := r.master(rnd), delay(rnd)
	r.w.note("packets of %s take %v", m.name, d)
	if err := m.host.Slow(d, netlab.Incoming, netlab.Outgoing); err != nil {
		return err
	}
	r.away(rnd, time.Second, faultTime)
	m.host.Unslow()
	return nil
}

// slowTwo delays the packets between two members, or those of one direction.
func slowTwo(r *round, rnd *rand.Rand) error {
	a, b := r.two(rnd)
	d, directions := delay(rnd), ways(rnd)
	r.w.note("%s packets of %s with %s take %v", directions, a.name, b.name, d)
	if err := a.host.SlowPeer(b.address, d, directions...); err != nil {
		return err
	}
	r.away(rnd, time.Second, faultTime)
	a.host.Unslow()
	return nil
}

func canStep(w *world) error {
	c, err := wrongclock.Of(w.master.pid())
	if err == nil {
		err = c.Set(0)
	}
	return err
}

// pid is that of the daemon: ip becomes the program that it runs in a host of its own.
func (m *machine) pid() int { return m.daemon.Process.Pid }

// steps are by how many seconds a clock is wrong.
var steps = []int64{-3600, -120, -7, -1, 1, 7, 120, 3600}

// stepped changes the clock of one process, and sometimes corrects it later. A process that
// starts again has the right time.
func stepped(who choice) func(*round, *rand.Rand) error {
	return func(r *round, rnd *rand.Rand) error {
		m, by := who(r, rnd), steps[rnd.IntN(len(steps))]
		c, err := wrongclock.Of(m.pid())
		if err != nil {
			return err
		}
		r.w.note("the clock of %s is wrong by %d s", m.name, by)
		if err := c.Set(by); err != nil {
			return err
		}
		r.away(rnd, time.Second, faultTime/2)
		if rnd.IntN(2) == 0 {
			return nil
		}
		return c.Set(0)
	}
}
