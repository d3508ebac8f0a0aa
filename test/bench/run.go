package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Options say what to measure with and how often. All are required.
type Options struct {
	Bin         string // the folder of the programs
	Dir         string // an empty folder to work in
	Rounds      int    // of the commands
	Connects    int    // in each of the rounds that count connections
	Acceptances int
	Losses      int           // of masters
	Pause       time.Duration // before the memory is read
	Fleets      Fleets        // with many simulated minions; without sizes it is left out
	OnlyFleets  bool
	Events      int // rounds of the event bus; 0 leaves it out
	OnlyEvents  bool
	Trio        int // simulated minions of a cluster of three; 0 leaves it out
	OnlyTrio    bool
}

// connectRounds is how often the connections are counted on each side.
const connectRounds = 5

// Run measures everything and prints a table to out: each part when it is measured, so
// that what ends a long run early leaves what it has.
func Run(ctx context.Context, o Options, out io.Writer) error {
	fmt.Fprintf(out, "%s; %s, %d cores; %s; load %s before.\n\n", time.Now().Format(time.DateOnly), cpuModel(), runtime.NumCPU(), runtime.Version(), load())
	if err := writeHead(out); err != nil {
		return err
	}
	for _, part := range parts(o) {
		rows, err := part.measure(ctx, o)
		if err := errors.Join(err, writeRows(out, rows)); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	_, err := fmt.Fprintf(out, "\nLoad %s after.\n", load())
	return err
}

// part is what is measured, and printed, together.
type part struct {
	name    string
	measure func(context.Context, Options) ([]Row, error)
}

func parts(o Options) (list []part) {
	if o.Trio > 0 && !o.OnlyFleets && !o.OnlyEvents {
		list = append(list, part{"three masters", three})
	}
	if o.OnlyTrio {
		return list
	}
	if !o.OnlyFleets && !o.OnlyEvents {
		list = append(list, part{"two minions", few})
	}
	if o.Events > 0 && !o.OnlyFleets {
		list = append(list, part{"events", events})
	}
	if o.OnlyEvents {
		return list
	}
	for _, n := range o.Fleets.Sizes {
		list = append(list, part{fmt.Sprintf("%d minions", n), func(ctx context.Context, o Options) ([]Row, error) { return fleet(ctx, o, o.Fleets, n) }})
	}
	return list
}

// few measures what needs two minions.
func few(ctx context.Context, o Options) ([]Row, error) {
	s, err := newSystem(o.Bin, o.Dir)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if err := s.startMaster(); err != nil {
		return nil, err
	}
	for _, id := range []string{"one", "two"} {
		if err := s.join(ctx, id); err != nil {
			return nil, err
		}
	}
	b, err := startBare(o.Bin, o.Dir)
	if err != nil {
		return nil, err
	}
	defer b.stop()
	return measure(ctx, o, s, b)
}

func measure(ctx context.Context, o Options, s *system, b *bare) ([]Row, error) {
	select { // the daemons come to rest
	case <-time.After(o.Pause):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	quiet, err := idle(s, b)
	if err != nil {
		return nil, err
	}
	rows, err := commands(ctx, pairs(s, b), o.Rounds)
	if err != nil {
		return nil, err
	}
	accepted, err := acceptances(ctx, s, o.Acceptances)
	if err != nil {
		return nil, err
	}
	rate, err := connectRates(ctx, s, b, connectRounds, o.Connects)
	if err != nil {
		return nil, err
	}
	lost, err := failovers(ctx, o)
	if err != nil {
		return nil, err
	}
	return append(append(append(rows, accepted), lost...), append([]Row{rate}, quiet...)...), nil
}

// join brings a new minion up to its first answer.
func (s *system) join(ctx context.Context, id string) error {
	if err := s.startMinion(ctx, id); err != nil {
		return err
	}
	if err := s.accept(ctx, id); err != nil {
		return err
	}
	return s.answered(ctx, id)
}

// acceptances measures from the start of salt-key to the first answer of the
// minion that waited, asked by salt again and again.
func acceptances(ctx context.Context, s *system, rounds int) (Row, error) {
	row := Row{What: "`salt-key -a` to the first answer", Unit: "ms", Goal: 300}
	for n := range rounds {
		id := fmt.Sprintf("new%d", n)
		if err := s.startMinion(ctx, id); err != nil {
			return row, err
		}
		begin := time.Now()
		if err := s.accept(ctx, id); err != nil {
			return row, err
		}
		if err := s.answered(ctx, id); err != nil {
			return row, err
		}
		row.Brine = append(row.Brine, time.Since(begin).Seconds()*1e3)
		s.end(s.cmd[id])
	}
	return row, nil
}

// load is the machine's load over the last minute.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	_, rest, found := strings.Cut(string(b), "model name")
	if !found {
		return runtime.GOARCH
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(strings.TrimLeft(line, "\t :"))
}

// Programs are what must be in the folder of the programs.
func Programs(bin string) error {
	for _, name := range []string{"salt", "salt-call", "salt-key", "salt-master", "salt-minion", "salt-run", "empty", "line", "bare", "bareserver", "fleet", "eventbus.test", "minion.test"} {
		if there, err := exists(filepath.Join(bin, name)); err != nil || !there {
			return fmt.Errorf("program %s is not in %s", name, bin)
		}
	}
	return nil
}
