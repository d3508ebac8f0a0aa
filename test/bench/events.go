package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// eventRow is a benchmark of the packages eventbus and minion as a row of the table. Both
// sides are measured there, in turns.
type eventRow struct {
	name         string // of the benchmark
	what, beside string
	ratio        float64
	brine, bare  string // the units of the two figures
	latency      bool   // less is better
}

const (
	acknowledged = "JetStream, an acknowledgement each"
	// acknowledgedByThree is with copies on three servers, at the leader.
	acknowledgedByThree = "JetStream of three copies, an acknowledgement each"

	consumed = "JetStream and an ordered consumer"
	plain    = "NATS, nothing stored"
	relayed  = "two JetStream servers and a program between them"
)

// eventRows are in the order of the table.
var eventRows = []eventRow{
	rate("FireStored/100B", "fire, stored, 100 B", acknowledged, 0.8),
	rate("FireStored/1024B", "fire, stored, 1 KiB", acknowledged, 0.8),
	rate("FireStoredOnThree/100B", "fire at a member of three, stored, 100 B", acknowledgedByThree, 1/trioGoal),
	rate("FireStoredOnThree/1024B", "fire at a member of three, stored, 1 KiB", acknowledgedByThree, 1/trioGoal),
	rate("FireToListen/100B", "fire to a listener, stored, 100 B", consumed, 0.8),
	rate("FireToListen/1024B", "fire to a listener, stored, 1 KiB", consumed, 0.8),
	rate("FireToListenBareNATS/stored/100B", "fire to a listener, stored, 100 B", plain, 0),
	rate("FireToListenBareNATS/stored/1024B", "fire to a listener, stored, 1 KiB", plain, 0),
	rate("FireToListenBareNATS/not_stored/100B", "fire to a listener, not stored, 100 B", plain, 0.8),
	rate("FireToListenBareNATS/not_stored/1024B", "fire to a listener, not stored, 1 KiB", plain, 0.8),
	rate("HundredListeners/JetStream", "one publisher, 100 listeners, stored, 100 B", "JetStream, a consumer each", 0.8),
	rate("HundredListeners/NATS", "one publisher, 100 listeners, stored, 100 B", plain, 0.8),
	rate("ListenersAtThree/JetStream", "one publisher, 99 listeners at three members, stored, 100 B", "JetStream of three copies, a consumer each", 1/trioGoal),
	rate("ListenersAtThree/NATS", "one publisher, 99 listeners at three members, stored, 100 B", "three servers of NATS, nothing stored", 0),
	rate("Replay/50000", "replay of 50,000 events of 100 B", "an ordered consumer", 0.8),
	rate("Replay/1000000", "replay of 1,000,000 events of 100 B", "an ordered consumer", 0.8),
	rate("Forward/batches_of_1000", "minion to master, batches of 1,000, 100 B", relayed, 0.8),
	rate("Forward/one_at_a_time", "minion to master, one at a time, 100 B", relayed, 0.8),
	{"Latency", "fired to heard, one at a time: p50", consumed, 0, "p50-µs", "bare-p50-µs", true},
	{"Latency", "fired to heard, one at a time: p99", consumed, 1.5, "p99-µs", "bare-p99-µs", true},
}

func rate(name, what, beside string, ratio float64) eventRow {
	return eventRow{name, what, beside, ratio, "events/s", "bare/s", false}
}

// events runs the benchmarks of the event bus, each as often as o.Events says.
func events(ctx context.Context, o Options) ([]Row, error) {
	var out []byte
	for _, program := range []struct{ name, pattern string }{{"eventbus.test", "."}, {"minion.test", "Forward"}} {
		r, err := once(ctx, filepath.Join(o.Bin, program.name), "-test.run=^$", "-test.bench="+program.pattern, "-test.benchtime=3x", "-test.count="+strconv.Itoa(o.Events), "-test.timeout=1h")
		if err != nil {
			return nil, err
		}
		out = append(out, r.out...)
	}
	return readEvents(out)
}

// readEvents makes rows of what the benchmarks have printed. One that is missing is an
// error: it would be missing in the table.
func readEvents(out []byte) ([]Row, error) {
	figures := map[string]Series{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(words[0], "Benchmark")
		if at := strings.LastIndexByte(name, '-'); at > 0 { // the number of cores
			name = name[:at]
		}
		for i := 2; i+1 < len(words); i += 2 {
			f, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				return nil, fmt.Errorf("unreadable benchmark %q", lines.Text())
			}
			key := name + " " + words[i+1]
			figures[key] = append(figures[key], f)
		}
	}
	rows := make([]Row, len(eventRows))
	for i, e := range eventRows {
		rows[i] = Row{What: e.what, Unit: "/s", Beside: e.beside, Ratio: e.ratio, More: !e.latency, Brine: figures[e.name+" "+e.brine], Bare: figures[e.name+" "+e.bare]}
		if e.latency {
			rows[i].Unit = "µs"
		}
		if len(rows[i].Brine) == 0 || len(rows[i].Brine) != len(rows[i].Bare) {
			return nil, fmt.Errorf("the benchmark %s has not printed its figures", e.name)
		}
	}
	return rows, nil
}
