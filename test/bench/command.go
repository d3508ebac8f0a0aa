package bench

import (
	"context"
	"path/filepath"
	"strings"
)

// pair is a command of Brine and what it is compared with.
type pair struct {
	name, beside string
	goal, ratio  float64 // the goal in milliseconds
	brine, bare  []string
}

func pairs(s *system, b *bare) []pair {
	local, call, many := s.saltCall("one", "--local", "test.ping"), s.saltCall("one", "test.ping"), s.salt("*", "test.ping")
	peers := s.saltCall("one", "publish.publish", "*", "test.ping")
	return append(completions(s), []pair{
		{"`salt-call --local test.ping`", "an empty Go program", 10, 0, local, []string{filepath.Join(s.bin, "empty")}},
		{"`salt-call --local test.ping`", "a Go program that prints a line", 0, 0, local, []string{filepath.Join(s.bin, "line")}},
		{"`salt-call test.ping`, daemon running", "a request over TCP", 20, 1.5, call, b.command("request", b.address, "ping")},
		{"`salt-call test.ping`, daemon running", "a request that a second server stores", 0, 0, call, b.command("request", b.local, "return")},
		{"`salt '*' test.ping`, two minions", "a request to two responders", 20, 1.5, many, b.command("scatter", b.address, "job.one", "job.two")},
		{"`salt '*' test.ping`, two minions", "the same through a program that stores request and answers", 0, 0, many, b.command("gather", b.address, "job")},
		{"`salt-call publish.publish '*' test.ping`, two minions", "a request to two responders", 20, 1.5, peers, b.command("scatter", b.address, "job.one", "job.two")},
		{"`salt-call publish.publish '*' test.ping`, two minions", "the same over TLS with certificates on both sides, as from the minion's machine", 20, 1.5, peers, b.secure("job.one", "job.two")},
		{"`salt-call publish.publish '*' test.ping`, two minions", "the same through a second server and a program that stores request and answers", 0, 0, peers, b.command("gather", b.local, "peers")},
	}...)
}

// completions are what somebody waits for who has pressed the tab key.
func completions(s *system) (list []pair) {
	for _, c := range []struct{ of, program, words string }{
		{"minion ids", "salt", "o"},
		{"functions", "salt", "one test."},
		{"runners", "salt-run", "manage."},
		{"job ids", "salt-run", "jobs.lookup_jid 2"},
		{"tags", "salt-event", "fire salt/"},
	} {
		brine := append([]string{s.program(c.program), "--complete", "-c", s.conf("master")}, strings.Fields(c.words)...)
		list = append(list, pair{"completion of " + c.of + ": `" + c.program + " --complete " + c.words + "`", "an empty Go program", 50, 0, brine, []string{filepath.Join(s.bin, "empty")}})
	}
	return list
}

// commands measures start to exit, in rounds: each has every command once, Brine
// and bare in turns.
func commands(ctx context.Context, list []pair, rounds int) ([]Row, error) {
	wall, cpu := make([]Row, len(list)), make([]Row, len(list))
	for i, p := range list {
		wall[i] = Row{What: p.name + ": wall", Beside: p.beside, Unit: "ms", Goal: p.goal, Ratio: p.ratio}
		cpu[i] = Row{What: p.name + ": CPU", Beside: p.beside, Unit: "ms"}
	}
	for n := range rounds + warmUp {
		for i, p := range list {
			ours, err := once(ctx, p.brine...)
			if err != nil {
				return nil, err
			}
			theirs, err := once(ctx, p.bare...)
			if err != nil {
				return nil, err
			}
			if n < warmUp {
				continue
			}
			wall[i].Brine, wall[i].Bare = append(wall[i].Brine, ours.wall.Seconds()*1e3), append(wall[i].Bare, theirs.wall.Seconds()*1e3)
			cpu[i].Brine, cpu[i].Bare = append(cpu[i].Brine, ours.cpu.Seconds()*1e3), append(cpu[i].Bare, theirs.cpu.Seconds()*1e3)
		}
	}
	return append(wall, cpu...), nil
}

// warmUp is how many rounds are not counted: they read the programs from the disk.
const warmUp = 2
