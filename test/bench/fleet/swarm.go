package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/peer"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// principal asks all of the fleet and returns how many have answered.
type principal func(context.Context) (int, error)

// member is one of the fleet.
type member map[way]principal

// way is in what way a fleet asks, the word for it on standard input.
type way string

const (
	plainly way = "ask"
	signed  way = "signed" // of bare ones: what Brine's way is at least
	back    way = "back"   // asks nobody, and counts when it was connected again
)

// obey lets all ask all at once for each line on standard input, and says how many
// answers came and how many milliseconds it took. After the last line it does nothing
// more, until it is ended.
func obey(all []member) error {
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		begin := time.Now()
		answers, err := askAll(all, way(lines.Text()))
		if err != nil {
			return err
		}
		fmt.Println(answers, time.Since(begin).Seconds()*1e3)
	}
	select {}
}

// patience bounds a round in which all ask all.
const patience = 5 * time.Minute

func askAll(all []member, w way) (answers int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	counts, errs := make([]int, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, m := range all {
		ask := m[w]
		if ask == nil {
			return 0, fmt.Errorf("there is no %q", w)
		}
		wg.Go(func() { counts[i], errs[i] = ask(ctx) })
	}
	wg.Wait()
	for _, n := range counts {
		answers += n
	}
	return answers, errors.Join(errs...)
}

// silence is the timeout of a publication. A minion's daemon says now and then that it
// is at work; a simulated one does not, and has a hundred jobs at a time.
const silence = time.Minute

// publisher asks as publish.publish does in a minion's daemon.
func publisher(m *simulated) principal {
	client := peer.Client{Conn: func(string) *rpc.Conn { return m.link.Load().Conn }}
	p := function.Publication{Target: "m*", TargetType: "glob", Calls: []salt.Command{{Function: "test.ping"}}, Timeout: silence}
	return func(ctx context.Context) (int, error) {
		answers, err := client.Publish(ctx, p)
		returned := 0
		for _, a := range answers {
			if a.Returned && !a.Failed && a.Return == true {
				returned++
			}
		}
		return returned, err
	}
}

// scatterer sends a request to each of n responders and takes as many answers.
func scatterer(nc *nats.Conn, n int) principal {
	return func(ctx context.Context) (int, error) {
		inbox := nats.NewInbox()
		sub, err := nc.SubscribeSync(inbox)
		if err != nil {
			return 0, err
		}
		defer func() { _ = sub.Unsubscribe() }() // it lived for this round
		for i := range n {
			if err := nc.PublishRequest("job."+strconv.Itoa(i), inbox, []byte("test.ping")); err != nil {
				return 0, err
			}
		}
		return take(ctx, sub, n)
	}
}

// take takes n answers.
func take(ctx context.Context, sub *nats.Subscription, n int) (int, error) {
	for i := range n {
		if _, err := sub.NextMsgWithContext(ctx); err != nil {
			return i, err
		}
	}
	return n, nil
}
