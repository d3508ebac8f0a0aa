// Command measure prints the table of package bench. scripts/bench builds what it
// needs and runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/test/bench"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

func run() error {
	var o bench.Options
	flag.StringVar(&o.Bin, "bin", "", "folder of the programs")
	flag.IntVar(&o.Rounds, "rounds", 60, "how often each command is run")
	flag.IntVar(&o.Connects, "connects", 2000, "connections in each of the rounds that count them")
	flag.IntVar(&o.Acceptances, "acceptances", 10, "how many minions are accepted")
	flag.IntVar(&o.Losses, "losses", 20, "how often a master is lost in each way")
	flag.DurationVar(&o.Pause, "settle", 15*time.Second, "rest before the memory is read")
	sizes := flag.String("fleets", "100,1000,5000", "how many simulated minions there are, in each of the runs with many")
	flag.IntVar(&o.Fleets.Rounds, "fleet-rounds", 10, "how often those are asked")
	flag.IntVar(&o.Fleets.Large, "large", 1000, "the number of minions that return a megabyte at once, one of those above")
	flag.IntVar(&o.Fleets.Peers, "peers", 100, "the number of minions that publish to all at once, one of those above")
	flag.IntVar(&o.Fleets.Back, "back", 1000, "the number of minions that come back after a restart of the master, one of those above")
	flag.BoolVar(&o.OnlyFleets, "only-fleets", false, "leave out all else")
	flag.IntVar(&o.Events, "events", 3, "how often the benchmarks of the event bus are run; 0 leaves them out")
	flag.BoolVar(&o.OnlyEvents, "only-events", false, "leave out all else")
	flag.IntVar(&o.Trio, "trio", 999, "how many simulated minions three masters of a cluster have; 0 leaves them out")
	flag.BoolVar(&o.OnlyTrio, "only-trio", false, "leave out all else")
	flag.Parse()
	for word := range strings.SplitSeq(*sizes, ",") {
		if n, err := strconv.Atoi(word); err == nil && n > 0 {
			o.Fleets.Sizes = append(o.Fleets.Sizes, n)
		}
	}
	if err := bench.Programs(o.Bin); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "brine-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.Dir = dir
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return bench.Run(ctx, o, os.Stdout)
}
