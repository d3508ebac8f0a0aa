package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Fleets are what to measure with many simulated minions.
type Fleets struct {
	Sizes  []int
	Rounds int
	Large  int // minions that return a megabyte at once; 0 leaves it out
	Peers  int // minions that publish to all at once; 0 leaves it out
	Back   int // minions that come back after a restart of the master; 0 leaves it out
}

// fleetGoal is what a scatter-gather through Brine may cost beside a bare one.
const fleetGoal = 1.5

// fleet measures test.ping over n minions beside a bare scatter-gather of the same
// size, in turns. With an error it returns the rows that it has.
func fleet(ctx context.Context, o Options, f Fleets, n int) ([]Row, error) {
	dir := filepath.Join(o.Dir, "fleet"+strconv.Itoa(n))
	s, err := newSystem(o.Bin, dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	defer s.stop()
	ours, err := s.startFleet(ctx, n)
	if err != nil {
		return nil, err
	}
	b, theirs, err := startBareFleet(o.Bin, dir, n)
	if err != nil {
		return nil, err
	}
	defer b.stop()
	rows, err := pings(ctx, s, b, f.Rounds, n)
	if err != nil {
		return rows, err
	}
	if n == f.Peers {
		more, err := swarm(ours, theirs, f.Rounds, n)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more...)
	}
	if n == f.Back {
		back, err := comebacks(ctx, s, b, ours, theirs, f.Rounds, n)
		if err != nil {
			return rows, err
		}
		rows = append(rows, back...)
	}
	if n == f.Large {
		large, err := megabytes(ctx, s, n)
		return append(rows, large...), err
	}
	return rows, nil
}

// equalWork is what Brine's jobs are at least, done with nothing but NATS.
const equalWork = "the same, signed and checked, request and answers stored and confirmed"

// swarm lets all minions publish to all at once, beside bare clients that ask each
// other, in turns. A lost answer is an error.
func swarm(ours, theirs *obeying, rounds, n int) ([]Row, error) {
	row := Row{What: fmt.Sprintf("%d minions publish `test.ping` to %d at once: wall", n, n), Beside: "as many requests to as many responders each", Unit: "ms"}
	equal := Row{What: row.What, Beside: equalWork, Unit: "ms"}
	for round := range rounds + warmUp {
		mine, err := rush(ours, "ask", n*n)
		if err != nil {
			return nil, err
		}
		other, err := rush(theirs, "ask", n*n)
		if err != nil {
			return nil, err
		}
		signed, err := rush(theirs, "signed", n*n)
		if err != nil {
			return nil, err
		}
		if round >= warmUp {
			row.Brine, row.Bare = append(row.Brine, mine), append(row.Bare, other)
			equal.Brine, equal.Bare = append(equal.Brine, mine), append(equal.Bare, signed)
		}
	}
	return []Row{row, equal}, nil
}

// rush lets all of a fleet ask all in this way and returns how many milliseconds it took.
func rush(p *obeying, way string, want int) (took float64, err error) {
	line, err := p.tell(way)
	if err != nil {
		return 0, err
	}
	got := 0
	if _, err := fmt.Sscan(line, &got, &took); err != nil {
		return 0, fmt.Errorf("a fleet says %q: %w", line, err)
	}
	if got != want {
		return 0, fmt.Errorf("%d of %d answers came", got, want)
	}
	return took, nil
}

// startFleet starts a master that knows the keys already, and minions that hold
// them.
func (s *system) startFleet(ctx context.Context, n int) (*obeying, error) {
	keys := filepath.Dir(s.keyFile("minions", "x"))
	if _, err := once(ctx, s.program("fleet"), "keys", keys, strconv.Itoa(n)); err != nil {
		return nil, err
	}
	if err := s.startMaster(); err != nil {
		return nil, err
	}
	if err := until(ctx, "the master", 10*time.Millisecond, func() (bool, error) { return exists(filepath.Join(s.root("master"), "pki", "master.pub")) }); err != nil {
		return nil, err
	}
	if err := s.listening(ctx); err != nil {
		return nil, err
	}
	p, _, err := s.startObeying(s.program("fleet"), "brine", s.address(), keys)
	return p, err
}

// listening waits until the master answers its tools.
func (s *system) listening(ctx context.Context) error {
	return until(ctx, "an answer of the master", 20*time.Millisecond, func() (bool, error) {
		_, err := once(ctx, s.program("salt-run"), "-c", s.conf("master"), "manage.present")
		return err == nil, nil
	})
}

// startBareFleet starts a bare server and as many responders.
func startBareFleet(bin, dir string, n int) (*bare, *obeying, error) {
	b := &bare{daemons: daemons{dir: dir}, bin: bin}
	var p *obeying
	var err error
	if b.server, b.address, err = b.startTalking(filepath.Join(bin, "bareserver"), filepath.Join(dir, "bare")); err == nil {
		p, _, err = b.startObeying(filepath.Join(bin, "fleet"), "bare", "tls://"+b.address, strconv.Itoa(n))
	}
	if err != nil {
		b.stop()
		return nil, nil, err
	}
	return b, p, nil
}

// pings measures start to exit, in turns; then again with one minion that is not
// there.
func pings(ctx context.Context, s *system, b *bare, rounds, n int) ([]Row, error) {
	subjects := make([]string, n)
	for i := range subjects {
		subjects[i] = "job." + strconv.Itoa(i)
	}
	row := Row{What: fmt.Sprintf("`salt '*' test.ping`, %d minions: wall", n), Beside: "a request to as many responders", Unit: "ms", Ratio: fleetGoal}
	equal := Row{What: row.What, Beside: equalWork, Unit: "ms"}
	dead := Row{What: "the same with one minion that is away: more", Unit: "ms"}
	if n <= 100 { // of more, the difference of two long times says nothing
		dead.Goal = 100
	}
	all, some := s.salt("*", "test.ping", "--out", "quiet", "--hide-timeout"), s.salt("m*", "test.ping", "--out", "quiet", "--hide-timeout")
	if err := s.awayMinion(ctx, "zzz"); err != nil {
		return nil, err
	}
	for round := range rounds + warmUp {
		ours, err := once(ctx, some...)
		if err != nil {
			return nil, err
		}
		theirs, err := once(ctx, b.command("scatter", b.address, subjects...)...)
		if err != nil {
			return nil, err
		}
		signed, err := once(ctx, b.command("signed", b.address, strconv.Itoa(n))...)
		if err != nil {
			return nil, err
		}
		lame, err := onceExit(ctx, 3, all...)
		if err != nil {
			return nil, err
		}
		if round < warmUp {
			continue
		}
		row.Brine, row.Bare = append(row.Brine, ours.wall.Seconds()*1e3), append(row.Bare, theirs.wall.Seconds()*1e3)
		equal.Brine, equal.Bare = append(equal.Brine, ours.wall.Seconds()*1e3), append(equal.Bare, signed.wall.Seconds()*1e3)
		dead.Brine = append(dead.Brine, (lame.wall-ours.wall).Seconds()*1e3)
	}
	return []Row{row, equal, dead}, nil
}

// awayMinion accepts a key that nobody holds.
func (s *system) awayMinion(ctx context.Context, id string) error {
	keys := filepath.Join(s.dir, "away")
	if _, err := once(ctx, s.program("fleet"), "keys", keys, "1"); err != nil {
		return err
	}
	pem, err := os.ReadFile(filepath.Join(keys, "m00000"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.keyFile("minions", id), pem, 0o644); err != nil {
		return err
	}
	return until(ctx, "the key of "+id, 50*time.Millisecond, func() (bool, error) {
		r, err := once(ctx, s.program("salt-run"), "-c", s.conf("master"), "manage.not_present")
		return err == nil && strings.Contains(string(r.out), id), nil
	})
}

// megabytes lets all minions return a megabyte at once, and asks one more, which has
// a daemon of its own, for something small meanwhile, again and again.
func megabytes(ctx context.Context, s *system, n int) ([]Row, error) {
	if err := s.join(ctx, "one"); err != nil {
		return nil, err
	}
	wall := Row{What: fmt.Sprintf("%d minions return 1 MB at once: wall", n), Unit: "ms"}
	meanwhile := Row{What: "`salt one test.ping` meanwhile: wall", Unit: "ms"}
	peak := Row{What: "the master's memory then: peak resident", Unit: "MiB"}
	var r ran
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, failed = once(ctx, s.salt("m*", "test.echo", "1000000", "--out", "quiet", "-t", "60")...)
	}()
	small, err := whileOpen(ended, func() (ran, error) { return once(ctx, s.salt("one", "test.ping", "--out", "quiet")...) })
	<-ended
	if err = errors.Join(failed, err); err != nil {
		return nil, err
	}
	wall.Brine, meanwhile.Brine = Series{r.wall.Seconds() * 1e3}, small
	most, err := peakOf(s.cmd["master"].Process.Pid)
	peak.Brine = Series{most}
	return []Row{wall, meanwhile, peak}, err
}

// whileOpen repeats f until ended is closed, and returns how many milliseconds it took
// each time.
func whileOpen(ended <-chan struct{}, f func() (ran, error)) (took Series, err error) {
	for {
		r, err := f()
		if err != nil {
			return took, err
		}
		took = append(took, r.wall.Seconds()*1e3)
		select {
		case <-ended:
			return took, nil
		default:
		}
	}
}
