package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
)

// Links are the connections of a minion to its masters, by number.
type Links interface {
	// Lead returns the number of the first connection to the same system as this one: to the same
	// master, or to members of the same cluster.
	Lead(i int) int
	// Generation returns the present generation of a connection. Another one begins when the master shows that it is not
	// of the system that the one before it was of.
	Generation(i int) string
	// Heirs returns the masters that get what was for a connection in a generation, as far as they are connected: those of the
	// system that it was of then. lead is the first connection to that system, and now its present generation.
	Heirs(i int, generation string) (lead int, now string, masters []Master)
}

// Boxes are the outboxes of a minion: one, or one for each of the masters that it is connected
// to at the same time. For masters that are one system they are used as one: what is for it is put into the
// first of them, and all are delivered to one of its masters, whichever is connected.
//
// What is put before it is known that they are one system is in several of them. It has the same number in each, by
// which the members of a cluster recognise it.
type Boxes struct {
	list  []*Box
	links Links
	once  string // the epoch of PutOnce

	mu    sync.Mutex
	using []Master // the one that each system's messages are delivered to, by its lead

	turns []headLock // of each outbox: it is held while one for the same system is delivered

	order  sync.Mutex        // held while a message of several outboxes is begun; guards the rest
	latest map[string]number // of the newest message of these outboxes
}

// plainBox is the name of the outbox of a minion with one connection.
const plainBox = ""

// Open opens an outbox for each connection of a minion to masters. addresses has, for each
// connection, the host and port of its only or first master. If there are several, each outbox is named by its
// address. Waiting messages in outboxes of other addresses are logged. After an error nothing
// is left open.
func Open(ctx context.Context, o Options, addresses []string, links Links) (boxes *Boxes, err error) {
	boxes = &Boxes{links: links, once: bus.NewNonce(), using: make([]Master, len(addresses)), latest: map[string]number{}}
	for range addresses {
		boxes.turns = append(boxes.turns, make(headLock, 1))
	}
	defer func() {
		if err != nil {
			boxes.Close()
			boxes = nil
		}
	}()
	adopt, err := o.plainWaits(ctx, len(addresses))
	if err != nil {
		return nil, err
	}
	for i, address := range addresses {
		name := plainBox
		if len(addresses) > 1 && !(i == 0 && adopt) {
			name = "_" + event.Escape(address)
		}
		b, err := open(ctx, o, name, route{
			generation: func() string { return links.Generation(i) },
			master:     func(generation string) Master { return boxes.master(i, generation) },
			failed:     func(generation string, m Master) { boxes.failed(i, generation, m) },
			enter:      func(ctx context.Context, generation string) (func(), error) { return boxes.enter(ctx, i, generation) },
		})
		if err != nil {
			return boxes, err
		}
		boxes.list = append(boxes.list, b)
	}
	return boxes, boxes.warnOfOthers(ctx, o)
}

// Close is the last call of all. Drain has returned, or is not running.
func (boxes *Boxes) Close() {
	for _, b := range boxes.list {
		b.close()
	}
}

// Count is how many there are, one for each connection. A nil Boxes has none.
func (boxes *Boxes) Count() int {
	if boxes == nil {
		return 0
	}
	return len(boxes.list)
}

// At returns the outbox of a connection.
func (boxes *Boxes) At(i int) *Box { return boxes.list[i] }

// For returns the outbox for the system of a connection.
func (boxes *Boxes) For(i int) Destination { return boxes.Since(i, boxes.links.Generation(i)) }

// Since returns the outbox for the system that a connection was of in a generation.
func (boxes *Boxes) Since(i int, generation string) Destination {
	lead, now, _ := boxes.links.Heirs(i, generation)
	return Destination{boxes.list[lead], now}
}

// Named returns the outbox for the system of a destination with that name, or else of the first outbox.
func (boxes *Boxes) Named(name string) Destination {
	name, generation, _ := strings.Cut(name, " ")
	if i := boxes.index(name); i >= 0 {
		return boxes.Since(i, generation)
	}
	return boxes.For(0)
}

func (boxes *Boxes) index(name string) int {
	return slices.IndexFunc(boxes.list, func(b *Box) bool { return b.name == name })
}

// Wake makes Drain look again at the outboxes: another master is connected.
func (boxes *Boxes) Wake() {
	for _, b := range boxes.list {
		b.Wake()
	}
}

// of returns the outboxes for the system with this lead, and the outbox i.
func (boxes *Boxes) of(lead, i int) (list []int) {
	for k := range boxes.list {
		if k == i || boxes.links.Lead(k) == lead {
			list = append(list, k)
		}
	}
	return list
}

// master returns the master that messages for a connection in a generation are delivered to, nil for none. It stays
// the same, as long as it is connected and stores them: another member of a cluster has to ask first what
// that one has stored.
func (boxes *Boxes) master(i int, generation string) Master {
	lead, _, masters := boxes.links.Heirs(i, generation)
	boxes.mu.Lock()
	defer boxes.mu.Unlock()
	if len(masters) == 0 {
		boxes.using[lead] = nil
	} else if !slices.Contains(masters, boxes.using[lead]) {
		boxes.using[lead] = masters[0]
	}
	return boxes.using[lead]
}

// failed has another master used than the one that has not stored a request.
func (boxes *Boxes) failed(i int, generation string, m Master) {
	lead, _, masters := boxes.links.Heirs(i, generation)
	boxes.mu.Lock()
	defer boxes.mu.Unlock()
	if at := slices.Index(masters, m); at >= 0 && boxes.using[lead] == m {
		boxes.using[lead] = masters[(at+1)%len(masters)]
	}
}

// enter waits until messages of an outbox in a generation may be delivered: no other one for the same system is, since a master expects one
// delivery of a minion at a time, and gives a minion capacity for one. It takes the turns of all of them: another one
// may be on its way that was begun before it was known that they are for one system.
func (boxes *Boxes) enter(ctx context.Context, i int, generation string) (leave func(), err error) {
	lead, _, _ := boxes.links.Heirs(i, generation)
	all := boxes.of(lead, i)
	for n, k := range all { // those that wait come in order at the first of them
		if !boxes.turns[k].lockWithin(ctx) {
			boxes.leave(all[:n])
			return nil, context.Cause(ctx)
		}
	}
	return func() { boxes.leave(all) }, nil
}

func (boxes *Boxes) leave(list []int) {
	for _, k := range list {
		boxes.turns[k].Unlock()
	}
}

// Put puts a message into the outbox of each system.
func (boxes *Boxes) Put(ctx context.Context, out Outgoing) error {
	sent, err := boxes.each(ctx, out, false, func(context.Context, *Box, Master, placed) (protocol.Fired, error) { return protocol.Fired{}, nil })
	for _, one := range sent {
		err = errors.Join(err, one.Err)
	}
	return err
}

// PutOnce puts a message for the system of a connection. Those with the same n, from 1 on, that are put for several
// connections in this order are one message to the members of a cluster: whether or not it is known that they
// are, they store it once.
func (boxes *Boxes) PutOnce(ctx context.Context, i, n int, out Outgoing) error {
	to := boxes.For(i)
	b := to.Box
	body, err := protocol.Encode(out.Body)
	if err == nil {
		err = b.makeSpace(context.WithoutCancel(ctx), putTime(body), int64(len(body)))
	}
	if err == nil {
		_, err = b.begin(to.of(out), body, false, number{boxes.once, uint64(n)}).wait(ctx)
	}
	return err
}

// Sent is what became of a message for one system.
type Sent struct {
	Number int // of its first connection
	protocol.Fired
	Err error
}

// Send puts a message into the outbox of each system, and waits for the answers as [Box.Send] does. It calls stored as
// soon as one of them has stored it.
func (boxes *Boxes) Send(ctx context.Context, out Outgoing, stored func()) ([]Sent, error) {
	return boxes.each(ctx, out, true, func(ctx context.Context, b *Box, m Master, p placed) (protocol.Fired, error) {
		fired, err := b.answer(ctx, m, p, patience(p))
		if err == nil && fired.Outcome == protocol.Stored {
			stored()
		}
		return fired, err
	})
}

// each puts a message into the outbox of each system, and calls then when one has it.
func (boxes *Boxes) each(ctx context.Context, out Outgoing, watch bool, then func(context.Context, *Box, Master, placed) (protocol.Fired, error)) ([]Sent, error) {
	if boxes.Count() == 0 {
		return nil, nil
	}
	body, err := protocol.Encode(out.Body)
	if err != nil {
		return nil, err
	}
	leads, to := boxes.leads()
	sent := make([]Sent, len(leads))
	masters := make([]Master, len(leads))
	for k, lead := range leads {
		sent[k].Number, masters[k] = lead, boxes.master(lead, to[k].generation)
	}
	begun := boxes.begin(ctx, leads, to, out, body, func(k int) bool { return watch && masters[k] != nil })
	var wg sync.WaitGroup
	for k, lead := range leads {
		wg.Go(func() {
			b, one := boxes.list[lead], &sent[k]
			var p placed
			if begun[k] != nil {
				p, one.Err = begun[k].wait(ctx)
				boxes.ended(begun[k], one.Err)
			} else {
				p, one.Err = b.putBody(ctx, to[k].of(out), body, watch && masters[k] != nil)
			}
			if one.Err == nil {
				one.Fired, one.Err = then(ctx, b, masters[k], p)
			}
		})
	}
	wg.Wait()
	return sent, nil
}

// leads are the outboxes of the systems.
func (boxes *Boxes) leads() (list []int, to []Destination) {
	for i, b := range boxes.list {
		if one := boxes.For(i); one.Box == b {
			list, to = append(list, i), append(to, one)
		}
	}
	return list, to
}

// begin begins to put a message into several outboxes under one number, and in the same order as all others that have
// such a number: the master takes a lower number after a higher one for a duplicate. For the same reason an epoch has the
// messages of the same outboxes only. One that has the message already, or has no space soon, is left out: nil.
func (boxes *Boxes) begin(ctx context.Context, among []int, to []Destination, out Outgoing, body []byte, watch func(k int) bool) []*putting {
	begun := make([]*putting, len(among))
	if len(among) < 2 {
		return begun
	}
	space := boxes.makeSpace(ctx, among, out.ID, int64(len(body)))
	boxes.order.Lock()
	defer boxes.order.Unlock()
	var able []int
	for k, i := range among {
		if _, known := boxes.list[i].requests.find(out.ID); !known && space[k] {
			able = append(able, i)
		}
	}
	if len(able) < 2 {
		return begun
	}
	of := boxes.next(able)
	for k, i := range among {
		if slices.Contains(able, i) {
			begun[k] = boxes.list[i].begin(to[k].of(out), body, watch(k), of)
		}
	}
	return begun
}

// spaceTime is how long the other outboxes wait for one that is full while its oldest messages are on their way.
const spaceTime = time.Second

// makeSpace makes space for a message in several outboxes, and reports which have it: before the message gets its
// number, since an outbox that makes space first would put it behind later ones. One without space after spaceTime may
// still get it: its master is slow, and must not delay the message for the others.
func (boxes *Boxes) makeSpace(ctx context.Context, among []int, id string, size int64) []bool {
	space := make([]bool, len(among))
	var wg sync.WaitGroup
	for k, i := range among {
		b := boxes.list[i]
		if _, known := b.requests.find(id); known {
			continue
		}
		if b.over(size) <= 0 {
			space[k] = true
			continue
		}
		wg.Go(func() { space[k] = b.makeSpace(context.WithoutCancel(ctx), spaceTime, size) == nil })
	}
	wg.Wait()
	return space
}

// next returns the next number of messages of these outboxes. The epoch stays the same even if messages of others come
// between: a master remembers few of them. The caller holds order.
func (boxes *Boxes) next(able []int) number {
	key := fmt.Sprint(able)
	of := boxes.latest[key]
	if of.epoch == "" {
		of.epoch = bus.NewNonce()
	}
	of.n++
	boxes.latest[key] = of
	return of
}

// ended begins a new epoch after a message that one of its outboxes lacks.
func (boxes *Boxes) ended(p *putting, err error) {
	if err == nil {
		return
	}
	boxes.order.Lock()
	defer boxes.order.Unlock()
	maps.DeleteFunc(boxes.latest, func(_ string, of number) bool { return of.epoch == p.epoch })
}

// plainWaits reports whether messages wait in the outbox of a single connection although there
// are now several: the first outbox then delivers them.
func (o Options) plainWaits(ctx context.Context, connections int) (bool, error) {
	if connections < 2 {
		return false, nil
	}
	n, err := o.waitingIn(ctx, plainBox)
	return n > 0, err
}

// waitingIn returns how many messages wait in the outbox of this name.
func (o Options) waitingIn(ctx context.Context, name string) (uint64, error) {
	q, err := journal.OpenQueue(ctx, o.Conn, queueName+name, o.Store)
	if err != nil {
		return 0, err
	}
	span, err := q.Span(ctx)
	return span.Last + 1 - min(span.First, span.Last+1), err
}

// warnOfOthers logs outboxes with messages for a master that is no longer in the configuration.
func (boxes *Boxes) warnOfOthers(ctx context.Context, o Options) error {
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		token, ok := strings.CutPrefix(e.Name(), boxFolder+"_")
		address, escaped := event.Unescape(token)
		if !ok || !escaped || !e.IsDir() || boxes.index("_"+token) >= 0 {
			continue
		}
		n, err := o.waitingIn(ctx, "_"+token)
		if err != nil {
			return err
		}
		if n > 0 {
			o.Log.Warn("events and returns wait for a master that is not in the configuration any more; name it again to have them delivered", "master", address, "count", n)
		}
	}
	return nil
}
