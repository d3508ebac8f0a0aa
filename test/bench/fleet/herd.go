package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// herd are simulated minions of a cluster. Each has a loopback address of its own, since to the
// masters those of a real fleet are many hosts. When a member is lost, its minions wait as long as
// the daemon does, by what the masters have told them, and connect to the others.
type herd struct {
	addresses []string
	dir       string
	trust     upstream.Trust
	all       []*stray

	refused atomic.Int64 // attempts at a member that runs which have failed
	mu      sync.Mutex
	reasons map[string]int
	lost    int             // minions that have lost their member
	back    []time.Duration // after the loss, of those that are connected again
}

// stray is one of them.
type stray struct {
	herd *herd
	opts upstream.Options
	at   string   // the member that it is connected to
	list []string // the members in its order
	link *upstream.Connection
	wait time.Duration
}

// runHerd connects N minions, and reports each loss of a member, until standard input ends.
func runHerd(addresses, dir string, n int) error {
	trust, err := trustSigned(dir)
	if err != nil {
		return err
	}
	h := &herd{addresses: strings.Split(addresses, ","), dir: dir, trust: trust, reasons: map[string]int{}}
	begun := time.Now()
	_, err = each(n, func(i int) (member, error) {
		s, err := h.join(i)
		if err != nil {
			return member{}, err
		}
		h.mu.Lock()
		h.all = append(h.all, s)
		h.mu.Unlock()
		return member{}, nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d minions connected in %.1f s, %d refused attempts\n", n, time.Since(begun).Seconds(), h.refused.Load())
	h.refused.Store(0)
	for _, s := range h.all {
		go s.keep()
	}
	go h.report()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// join connects a minion to the first member of its order.
func (h *herd) join(i int) (*stray, error) {
	key, err := pki.LoadPrivate(filepath.Join(h.dir+".keys", id(i)+".pem"))
	if err != nil {
		return nil, err
	}
	source := netip.AddrFrom4([4]byte{127, 77, byte(i >> 8), byte(i)})
	s := &stray{herd: h, list: slices.Clone(h.addresses), opts: upstream.Options{
		ID: salt.MinionID(id(i)), Key: key, Version: "bench", Timeout: time.Minute, PingInterval: 5 * time.Minute, Source: source.String(),
		Trust: h.trust,
		Log:   slog.New(slog.DiscardHandler),
	}}
	slices.SortFunc(s.list, func(a, b string) int { return cmp.Compare(weight(i, a), weight(i, b)) })
	for n := 0; !s.move(); n++ {
		time.Sleep(pause(n))
	}
	return s, nil
}

func weight(i int, address string) uint64 {
	f := fnv.New64a()
	fmt.Fprintf(f, "%d %s", i, address)
	return f.Sum64()
}

// connect is what the daemon does, with its greeting and the pillar.
func (s *stray) connect(address string) error {
	s.opts.Address = address
	s.opts.PinFile = pinOf(s.herd.dir, address)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // as the daemon has it
	defer cancel()
	l, err := upstream.Connect(ctx, s.opts)
	if err != nil {
		return err
	}
	var w protocol.Welcome
	if _, err = l.NC.SubscribeSync(bus.JobSubject(s.opts.ID)); err == nil {
		err = l.Ask(ctx, protocol.OpHello, protocol.Hello{Grains: value.Value{V: map[string]any{"id": string(s.opts.ID)}}, Version: "bench", Moves: true}, &w)
	}
	if err == nil {
		err = l.Ask(ctx, protocol.OpPillar, nil, new(protocol.Pillar))
	}
	if err != nil {
		l.Close()
		return err
	}
	if w.Cluster != nil {
		s.wait = w.Cluster.Spread
	}
	s.link, s.at = l, address
	return nil
}

// keep connects to another member whenever the connection has ended.
func (s *stray) keep() {
	for {
		<-s.link.Closed
		lost := time.Now()
		s.herd.note(func(h *herd) { h.lost++ })
		time.Sleep(rand.N(s.wait + 1)) // as the daemon does
		for n := 0; !s.move(); n++ {
			time.Sleep(pause(n))
		}
		s.herd.note(func(h *herd) { h.back = append(h.back, time.Since(lost)) })
	}
}

// move tries the other members, then the one that was lost.
func (s *stray) move() bool {
	before := s.at
	for _, address := range append(slices.DeleteFunc(slices.Clone(s.list), func(a string) bool { return a == before }), before) {
		err := s.connect(address)
		if err == nil {
			return true
		}
		if !errors.Is(err, syscall.ECONNREFUSED) { // that one does not run
			s.herd.refused.Add(1)
			text := err.Error()
			reason := text[strings.LastIndex(text, ": ")+1:] // without addresses
			s.herd.note(func(h *herd) { h.reasons[reason]++ })
		}
	}
	return false
}

func (h *herd) note(f func(*herd)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
}

// report tells of each loss when all are connected again, and every ten seconds until then.
func (h *herd) report() {
	for n := 0; ; n++ {
		time.Sleep(10 * time.Millisecond)
		h.note(func(h *herd) {
			if h.lost == 0 {
				n = 0
			}
			if n%1000 == 999 {
				fmt.Printf("%d of %d minions are connected again, %d refused attempts\n", len(h.back), h.lost, h.refused.Load())
			}
			if h.lost == 0 || len(h.back) < h.lost {
				return
			}
			slices.Sort(h.back)
			fmt.Printf("%d minions lost their member; connected again after %.2f s in the median, %.2f s at most; %d refused attempts\n",
				h.lost, h.back[h.lost/2].Seconds(), h.back[h.lost-1].Seconds(), h.refused.Swap(0))
			for reason, n := range h.reasons {
				fmt.Printf("  %d times: %s\n", n, reason)
			}
			h.lost, h.back, h.reasons = 0, nil, map[string]int{}
		})
	}
}
