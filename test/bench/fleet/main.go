// Command fleet is many simulated minions in one process: connections, jobs
// and returns go through the very packages of the minion's daemon, and
// what is behind them (disk, functions, a bus of its own) is left out. With the word
// bare it is as many responders with nothing but nats.go.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// run does one of
//
//	keys DIR N        writes N public keys into DIR and the private ones into DIR.keys
//	brine ADDRESSES DIR   connects a minion for each key
//	bare URLS N           connects N responders, on job.0, job.1, ...
//	herd ADDRESSES DIR N  connects N minions to the members of a cluster
//
// and distributes the connections over the addresses, which are separated by commas. Members of a
// cluster sign their keys, with the pair whose public half is in DIR.keys.
//
// Who is connected obeys standard input.
func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "keys":
		return makeKeys(args[1], number(args[2]))
	case len(args) == 3 && args[0] == "brine":
		all, err := minions(args[1], args[2])
		if err != nil {
			return err
		}
		return obey(all)
	case len(args) == 3 && args[0] == "bare":
		n := number(args[2])
		urls := strings.Split(args[1], ",")
		all, err := each(n, func(i int) (member, error) { return responder(urls[i%len(urls)], i, n) })
		if err != nil {
			return err
		}
		return obey(all)
	case len(args) == 4 && args[0] == "herd":
		return runHerd(args[1], args[2], number(args[3]))
	}
	return errors.New("usage: fleet keys DIR N | brine ADDRESSES DIR | bare URLS N | herd ADDRESSES DIR N")
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// id is the name of a minion.
func id(i int) string { return fmt.Sprintf("m%05d", i) }

func makeKeys(dir string, n int) error {
	private := dir + ".keys"
	for _, d := range []string{dir, private} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	for i := range n {
		key, err := pki.Generate(pki.Ed25519, 0)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, id(i)), key.Public().PEM(), 0o644); err != nil {
			return err
		}
		if err := key.WritePair(private, id(i)); err != nil {
			return err
		}
	}
	return nil
}

// atOnce is how many connections are made at a time.
const atOnce = 16

// each makes n connections.
func each(n int, connect func(i int) (member, error)) ([]member, error) {
	all := make([]member, n)
	next := make(chan int)
	failed := make(chan error, atOnce)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				var err error
				if all[i], err = connect(i); err != nil {
					failed <- fmt.Errorf("%s: %w", id(i), err)
					return
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
		case err := <-failed:
			return nil, err
		}
	}
	close(next)
	wg.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
	}
	return all, nil
}

func minions(addresses, dir string) ([]member, error) {
	if list := strings.Split(addresses, ","); len(list) > 1 {
		return clusterMinions(list, dir)
	}
	keys, err := filepath.Glob(filepath.Join(dir+".keys", "*.pem"))
	if err != nil {
		return nil, err
	}
	pin := filepath.Join(dir+".keys", "minion_master.pub")
	first, err := minion(addresses, dir, pin, 0, upstream.Trust{}) // it pins the master's key for all
	if err != nil {
		return nil, err
	}
	others, err := each(len(keys)-1, func(i int) (member, error) { return minion(addresses, dir, pin, i+1, upstream.Trust{}) })
	return append(others, first), err
}

// clusterMinions connects the minions to the members of a cluster in turn.
func clusterMinions(addresses []string, dir string) ([]member, error) {
	keys, err := filepath.Glob(filepath.Join(dir+".keys", "m*.pem"))
	if err != nil {
		return nil, err
	}
	trust, err := trustSigned(dir)
	if err != nil {
		return nil, err
	}
	return each(len(keys), func(i int) (member, error) {
		address := addresses[i%len(addresses)]
		return minion(address, dir, pinOf(dir, address), i, trust)
	})
}

// trustSigned trusts the keys that members of a cluster have signed.
func trustSigned(dir string) (upstream.Trust, error) {
	key, err := pki.LoadPublic(filepath.Join(dir+".keys", "master_sign.pub"))
	return upstream.Trust{Verify: true, VerifyKey: key}, err
}

func pinOf(dir, address string) string {
	return filepath.Join(dir+".keys", "minion_master."+strings.ReplaceAll(address, ":", "_")+".pub")
}

// minion connects one simulated minion.
func minion(address, dir, pin string, i int, trust upstream.Trust) (member, error) {
	key, err := pki.LoadPrivate(filepath.Join(dir+".keys", id(i)+".pem"))
	if err != nil {
		return nil, err
	}
	m := &simulated{epoch: bus.NewNonce(), ready: make(chan struct{}, 1), opts: upstream.Options{
		Address: address, ID: salt.MinionID(id(i)), Key: key, PinFile: pin, Trust: trust, Version: "bench", Timeout: time.Minute, PingInterval: 5 * time.Minute,
		Log: slog.New(slog.DiscardHandler),
	}}
	if err := m.connect(); err != nil {
		return nil, err
	}
	go m.drain() // they live as long as the process
	go m.keep()
	return member{plainly: publisher(m), back: m.back.wait}, nil
}

// simulated is a minion that answers a job as the daemon does a quick one: by the
// return from its outbox.
type simulated struct {
	opts  upstream.Options
	link  atomic.Pointer[upstream.Connection]
	epoch string
	ready chan struct{} // something waits
	back  comebacks

	mu      sync.Mutex // guards what follows
	n       uint64
	waiting []outbox.Message
}

// connect makes a session as the daemon does: the connection, its jobs, a greeting.
func (m *simulated) connect() error {
	l, err := upstream.Connect(context.Background(), m.opts)
	if err != nil {
		return err
	}
	m.link.Store(l)
	var asm rpc.Assembler
	_, err = l.NC.Subscribe(bus.JobSubject(m.opts.ID), func(msg *nats.Msg) {
		if body, done, err := asm.Add(msg); err == nil && done {
			m.onJob(body)
		}
	})
	if err == nil {
		err = l.Ask(context.Background(), protocol.OpHello, protocol.Hello{Grains: value.Value{V: map[string]any{"id": string(m.opts.ID)}}, Version: "bench"}, nil)
	}
	if err != nil {
		l.Close()
	}
	return err
}

// keep connects again whenever the connection has ended, with the pauses of the daemon.
func (m *simulated) keep() {
	for {
		<-m.link.Load().Closed
		for n := 0; m.connect() != nil; n++ {
			time.Sleep(pause(n))
		}
		m.back.one()
	}
}

// onJob judges a job where it arrives and runs it elsewhere, as the daemon does.
func (m *simulated) onJob(body []byte) {
	e, err := job.Open(body, m.link.Load().Master, time.Now())
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		return
	}
	go m.run(e)
}

// run runs a job and puts its return into the outbox.
func (m *simulated) run(e *job.Envelope) {
	ret := protocol.Return{Report: job.Report{State: job.Done, Return: result(e), Retcode: value.Value{V: 0}, Success: value.Value{V: true}}, Commands: e.Commands}
	b, err := protocol.Encode(ret)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		return
	}
	m.mu.Lock()
	m.n++
	m.waiting = append(m.waiting, outbox.Message{Epoch: m.epoch, N: m.n, Op: "ret." + string(e.JID), Body: b})
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// drain delivers what waits, all that there is with one request.
func (m *simulated) drain() {
	for range m.ready {
		for list := m.take(); len(list) > 0; list = m.take() {
			for n := 0; m.deliver(list) != nil; n++ { // the master is away
				time.Sleep(pause(n))
			}
		}
	}
}

// take takes the messages of the next request, by the rules of the daemon's outbox.
func (m *simulated) take() (list []outbox.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size, n := 0, 0
	for n < len(m.waiting) && n < outbox.MaxBatch && (n == 0 || size+len(m.waiting[n].Body) <= outbox.MaxBatchBytes) {
		size += len(m.waiting[n].Body)
		n++
	}
	list, m.waiting = m.waiting[:n:n], m.waiting[n:]
	return list
}

func (m *simulated) deliver(list []outbox.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	size := 0
	for _, l := range list {
		size += len(l.Body)
	}
	if size > outbox.SmallBatch {
		room, err := m.link.Load().Call(outbox.OpCapacity, outbox.Capacity{Bytes: int64(size)})
		if err != nil {
			return err
		}
		defer room.Close()
		var given outbox.Capacity
		if err := room.Decode(ctx, &given); err != nil {
			return err
		}
	}
	return m.link.Load().Ask(ctx, outbox.OpDeliver, outbox.Batch{Messages: list}, nil)
}

// result is True, or for test.echo so many bytes as it is given.
func result(e *job.Envelope) value.Value {
	if c := e.Commands[0]; c.Function == "test.echo" && len(c.Args) == 1 {
		if n, ok := c.Args[0].(int64); ok {
			return value.Value{V: strings.Repeat("x", int(n))}
		}
	}
	return value.Value{V: true}
}

// responder answers forever, over TLS with a certificate on both sides, and asks n of
// its like.
func responder(url string, i, n int) (member, error) {
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		return nil, err
	}
	certificate, err := key.Certificate("bare")
	if err != nil {
		return nil, err
	}
	again := &comebacks{}
	nc, err := nats.Connect(url, nats.Timeout(time.Minute), nats.MaxReconnects(-1), nats.CustomReconnectDelay(pause), nats.ReconnectHandler(func(*nats.Conn) { again.one() }), nats.Secure(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true, //nolint:gosec // a measurement
	}))
	if err != nil {
		return nil, err
	}
	if _, err := nc.Subscribe("job."+strconv.Itoa(i), func(m *nats.Msg) { _ = m.Respond([]byte("local:\n    True")) }); err != nil {
		return nil, err
	}
	if err := answerSigned(nc, i); err != nil {
		return nil, err
	}
	return member{plainly: scatterer(nc, n), signed: signer(nc, n), back: again.wait}, nc.Flush()
}
