package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Limits of what a member does for other members.
const (
	maxBody    = bus.LargeBody    // bytes of one request
	maxAnswer  = 900 << 10        // bytes of an answer, which is one message
	askTime    = 30 * time.Second // for a request without a deadline of its own
	handleTime = 2 * time.Minute  // for a request whose sender does not say how long it waits
)

// ErrGone means that a member is not running, or has stopped before it answered.
var ErrGone = errors.New("this member of the cluster is gone")

// Handler answers a request of the member from. It returns the answer; the sender gets an
// rpc.Error unchanged.
type Handler func(ctx context.Context, from string, body []byte) (answer any, err error)

// Minions is informed which minions are connected to other members, by one call at a time.
type Minions interface {
	// Came is called when a minion has connected to a member, and again when its key or grains
	// have changed.
	Came(member string, m Minion)
	// Went is called when it is no longer connected to that member.
	Went(member string, id salt.MinionID)
}

// Minion is a connected minion.
type Minion struct {
	ID  salt.MinionID `json:"id"`
	Key string        `json:"key"` // the token of its key
	// Checksums of what is known of it, "" for nothing.
	Grains string `json:"sum,omitempty"`
	Pillar string `json:"pillar,omitempty"`
	// Process is the process of its daemon, NoProcess if that does not say; "" if the member does not say, since
	// it is of an older version.
	Process string `json:"process,omitempty"`
	// Source is the address that it has connected from, "" where that is not known. It is only logged.
	Source string `json:"source,omitempty"`
	// NoPillar says that its pillar was forgotten on purpose.
	NoPillar bool `json:"nopillar,omitempty"`
	// Since is when it has connected, by the clock of this machine. It is zero if the member does not say, since it is of
	// an older version.
	Since time.Time `json:"since,omitzero"`
}

// is reports whether nothing has changed but perhaps the time.
func (m Minion) is(other Minion) bool {
	m.Since = other.Since
	return m == other
}

// NoProcess is that of a minion of an older version.
const NoProcess = "-"

// Options are what an Exchange needs. All but Heartbeat are required.
type Options struct {
	Name      string // of this member
	Conn      *nats.Conn
	Minions   Minions
	Heartbeat time.Duration // the pause between heartbeats; 0 is the default
	Log       *slog.Logger
}

// Exchange is one member's end of the messages between members.
type Exchange struct {
	opts     Options
	run      string           // a random text for this start: after a restart, a member has forgotten everything
	kinds    map[string]*kind // of requests
	throttle logging.Throttle
	ctx      context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup
	endMu    sync.Mutex
	ended    bool // nothing is handled any more
	subs     []*nats.Subscription
	news     chan struct{} // signals a member that has come

	partialMu sync.Mutex
	partial   map[string]*request // the incomplete ones, by their reply subjects

	turn    sync.Mutex // held while a message is handled, so that changes are in order
	changes *changes   // of which Minions is informed by tellMinions

	mu    sync.Mutex // guards the next fields; never held while others are called
	n     uint64     // number of changes at this member so far
	here  map[salt.MinionID]Minion
	peers map[string]*peer
	where map[salt.MinionID]map[string]uint64 // the members that a minion is connected to, by when it came
	came  uint64                              // how many have come so far
}

// New makes an Exchange. Handlers are registered before Start.
func New(o Options) *Exchange {
	if o.Heartbeat == 0 {
		o.Heartbeat = usualHeartbeat
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Exchange{
		opts: o, run: bus.NewNonce(), kinds: map[string]*kind{}, ctx: ctx, stop: stop, news: make(chan struct{}, 1),
		partial: map[string]*request{}, here: map[salt.MinionID]Minion{}, peers: map[string]*peer{}, where: map[salt.MinionID]map[string]uint64{},
		changes: newChanges(),
	}
}

// Handle registers the handler of one kind of request. It is called before Start.
func (x *Exchange) Handle(kind string, h func(ctx context.Context, from string, body []byte) (answer any, err error)) {
	x.kinds[kind] = newKind(h)
}

// IsGone reports whether a request has failed because the member is not running, or has
// stopped.
func (x *Exchange) IsGone(err error) bool { return errors.Is(err, ErrGone) }

// Start subscribes and starts the heartbeats.
func (x *Exchange) Start() error {
	for _, subject := range []string{bus.MemberSubject(x.opts.Name, ">"), bus.MembersSubject(">")} {
		sub, err := x.opts.Conn.Subscribe(subject, x.receive)
		if err != nil {
			return fmt.Errorf("talk to the other members: %w", err)
		}
		x.subs = append(x.subs, sub)
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			return fmt.Errorf("talk to the other members: %w", err)
		}
	}
	x.wg.Go(x.heartbeat)
	x.wg.Go(x.dropBroken)
	x.wg.Go(x.tellMinions)
	return x.opts.Conn.Flush()
}

// Stop informs the others that this member stops, and ends. When it returns, nothing of it
// runs.
func (x *Exchange) Stop() {
	for _, sub := range x.subs {
		_ = sub.Unsubscribe() // this fails only if the connection has ended
	}
	x.stop()
	x.endMu.Lock()
	x.ended = true // a message may still be on its way to receive
	x.endMu.Unlock()
	x.wg.Wait()
	x.say(bus.MembersSubject(kindPresence), presence{Run: x.run, Bye: true})
	_ = x.opts.Conn.FlushTimeout(time.Second) // the others notice the end in any case
}

// subject returns the subject of a message of this member.
func (x *Exchange) subject(root string) string { return root + "." + event.Escape(x.opts.Name) }

// receive handles a message of another member: salt.member.<to>.<kind>.<from>.
func (x *Exchange) receive(m *nats.Msg) {
	x.endMu.Lock()
	ended := x.ended
	if !ended {
		x.wg.Add(1)
	}
	x.endMu.Unlock()
	if ended {
		return
	}
	defer x.wg.Done()
	parts := strings.Split(m.Subject, ".")
	if len(parts) != 5 {
		return
	}
	from, ok := event.Unescape(parts[4])
	if !ok || from == x.opts.Name || bus.CheckJournalName(from) != nil {
		return
	}
	if parts[3] == kindPresence {
		x.hear(from, m)
		return
	}
	k := x.kinds[parts[3]]
	if k == nil {
		x.answer(m.Reply, nil, rpc.Errorf(rpc.NotFound, "member %s does not know the request %.40q: is it of an older version?", x.opts.Name, parts[3]))
		return
	}
	r, body, err := x.assemble(k, from, m)
	if r == nil {
		return
	}
	if err == nil && !k.places.Take(from, 1) {
		err = rpc.Errorf(rpc.Busy, "member %s has %d requests of this kind under way", x.opts.Name, maxUnderWay)
	}
	if err != nil {
		r.release()
		x.answer(m.Reply, nil, err)
		return
	}
	ctx, cancel := context.WithTimeout(x.ctx, timeOf(m))
	x.wg.Go(func() {
		defer r.release()
		defer k.places.Give(from, 1)
		defer cancel()
		v, err := k.handle(ctx, from, body)
		x.answer(m.Reply, v, err)
	})
}

// Later is the error of a handler that refuses something for now: whoever asks gets its text, as
// they do not of other errors.
func Later(format string, args ...any) error { return rpc.Errorf(rpc.Busy, format, args...) }

// reply is an answer.
type reply struct {
	Err  *rpc.Error      `json:"err,omitempty"`
	Body json.RawMessage `json:"body,omitempty"`
}

func (x *Exchange) answer(to string, v any, err error) {
	if to == "" {
		return
	}
	var r reply
	if err == nil && v != nil {
		r.Body, err = encode(v)
	}
	if err == nil && len(r.Body) > maxAnswer {
		err = rpc.Errorf(rpc.Usage, "the answer has %d bytes", len(r.Body))
	}
	if err != nil {
		r.Body = nil
		if !errors.As(err, &r.Err) {
			x.throttle.Log(x.opts.Log, slog.LevelWarn, "failed", 5, "a request of another member has failed", "err", err)
			r.Err = rpc.Errorf(rpc.Unavailable, "member %s could not do this; its log names the cause", x.opts.Name)
		}
	}
	b, err := encode(r)
	if err == nil {
		err = x.opts.Conn.Publish(to, b)
	}
	if err != nil && x.ctx.Err() == nil {
		x.opts.Log.Warn("another member was not answered", "err", err)
	}
}

// Ask sends a request to a member, and waits for its answer. If the member is not running, or
// stops, the error is ErrGone: in the second case the request may have been carried out.
func (x *Exchange) Ask(ctx context.Context, to, kind string, body, answer any) error {
	gone := x.gone(to)
	if gone == nil {
		return fmt.Errorf("%w: %s", ErrGone, to)
	}
	return x.ask(ctx, gone, to, kind, body, answer)
}

// AskLinked is Ask of a member to which there is a route, before Start, when it is not known yet which
// members run.
func (x *Exchange) AskLinked(ctx context.Context, to, kind string, body, answer any) error {
	return x.ask(ctx, context.Background(), to, kind, body, answer)
}

func (x *Exchange) ask(ctx, gone context.Context, to, kind string, body, answer any) error {
	b, err := encode(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	defer context.AfterFunc(gone, cancel)()
	got, err := x.request(ctx, x.subject(bus.MemberSubject(to, kind)), b)
	switch {
	case errors.Is(err, nats.ErrNoResponders), err != nil && gone.Err() != nil:
		return fmt.Errorf("%w: %s", ErrGone, to)
	case err != nil:
		return fmt.Errorf("ask member %s: %w", to, err)
	}
	var r reply
	if err := json.Unmarshal(got, &r); err != nil {
		return fmt.Errorf("unreadable answer of member %s: %w", to, err)
	}
	if r.Err != nil {
		return r.Err
	}
	if answer == nil || len(r.Body) == 0 {
		return nil
	}
	return json.Unmarshal(r.Body, answer)
}

// request sends the pieces of a request, and waits for the answer.
func (x *Exchange) request(ctx context.Context, subject string, body []byte) ([]byte, error) {
	if len(body) <= rpc.MaxPart {
		m, err := x.opts.Conn.RequestMsgWithContext(ctx, withTime(ctx, &nats.Msg{Subject: subject, Data: body}))
		if err != nil {
			return nil, err
		}
		return m.Data, nil
	}
	inbox := x.opts.Conn.NewInbox()
	sub, err := x.opts.Conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // this fails only if the connection has ended
	if err := rpc.PublishRequest(timed{ctx, x.opts.Conn}, subject, inbox, body); err != nil {
		return nil, err
	}
	m, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return nil, err
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return nil, nats.ErrNoResponders
	}
	return m.Data, nil
}
