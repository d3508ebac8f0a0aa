package journal

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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/logging"
)

// Link lets other masters mirror the journal: it answers the one question that a mirror
// asks, for messages from a sequence on. What they are sent, and how, is decided here.
// Their servers ask for a consumer of the stream, which may be nearly anything, a sender to
// any subject among it.
type Link struct {
	own      string     // the name of the journal
	nc       *nats.Conn // of the daemon, to the journal
	links    *nats.Conn // among the links
	log      *slog.Logger
	throttle logging.Throttle
	mu       sync.Mutex
	before   map[string]string // the consumer that each reader has
}

// apiTime is how long the server may take for an answer about a consumer.
const apiTime = 5 * time.Second

// NewLink answers on links, which it closes with Close.
func (j *Journal) NewLink(own string, links *nats.Conn, log *slog.Logger) (*Link, error) {
	l := &Link{own: own, nc: j.js.Conn(), links: links, log: log, before: map[string]string{}}
	if _, err := links.Subscribe(bus.Link{Owner: own, Reader: "*"}.Create(), l.create); err != nil {
		return nil, fmt.Errorf("serve links: %w", err)
	}
	return l, nil
}

// Close ends it.
func (l *Link) Close() { l.links.Close() }

// wanted is what counts of a mirror's question.
type wanted struct {
	Config struct {
		Deliver string `json:"deliver_subject"`
		Start   uint64 `json:"opt_start_seq"`
	} `json:"config"`
}

// create makes the consumer of a mirror. The subject is what the server has let the reader
// publish to, and so names it.
func (l *Link) create(m *nats.Msg) {
	to := bus.Link{Owner: l.own, Reader: strings.Split(m.Subject, ".")[2]}
	answer, err := l.answer(to, m)
	if err == nil {
		err = m.RespondMsg(answer)
	}
	if err == nil {
		return
	}
	if left, tell := l.throttle.Count("", time.Now(), maxLoggedOfLinks); tell {
		l.log.Warn("a mirror of the journal was not served", "mirror", to.Reader, "err", err, "repeated", left)
	}
}

// maxLoggedOfLinks is of how many questions the log tells in a minute that were not answered.
const maxLoggedOfLinks = 5

func (l *Link) answer(to bus.Link, m *nats.Msg) (*nats.Msg, error) {
	var q wanted
	if err := json.Unmarshal(m.Data, &q); err != nil {
		return nil, fmt.Errorf("unreadable question: %w", err)
	}
	rest, ok := strings.CutPrefix(q.Config.Deliver, to.Deliver()+".")
	if !ok || rest == "" || strings.ContainsAny(rest, "*> \t\r\n") {
		return nil, fmt.Errorf("it asks for messages on %.100q, which is not its own", q.Config.Deliver)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.forget(to.Reader); err != nil {
		return nil, err
	}
	body, err := json.Marshal(consumerFor(to, q))
	if err != nil {
		return nil, err
	}
	ask := nats.NewMsg(jetstream.DefaultAPIPrefix + "CONSUMER.CREATE." + Stream)
	ask.Data = body
	got, err := l.nc.RequestMsg(ask, apiTime)
	if err != nil {
		return nil, err
	}
	var made struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(got.Data, &made); err == nil && made.Name != "" {
		l.before[to.Reader] = made.Name
	}
	return &nats.Msg{Header: got.Header, Data: got.Data}, nil
}

// consumerFor is what a mirror's server asks for, as it would ask itself.
func consumerFor(to bus.Link, q wanted) any {
	c := map[string]any{
		"name": "JS_MIRROR_" + to.Reader, "deliver_subject": q.Config.Deliver, "deliver_policy": "all",
		"ack_policy": "none", "max_deliver": 1, "ack_wait": 22 * time.Hour, "idle_heartbeat": time.Second, "flow_control": true,
		"direct": true, "sourcing": true, "inactive_threshold": 10 * time.Second, "replay_policy": "instant",
	}
	if q.Config.Start > 0 {
		c["deliver_policy"], c["opt_start_seq"] = "by_start_sequence", q.Config.Start
	}
	return map[string]any{"stream_name": Stream, "config": c}
}

// forget removes the consumer that a reader had: one at a time.
func (l *Link) forget(reader string) error {
	name := l.before[reader]
	if name == "" {
		return nil
	}
	delete(l.before, reader)
	_, err := l.nc.Request(jetstream.DefaultAPIPrefix+"CONSUMER.DELETE."+Stream+"."+name, nil, apiTime)
	return err
}

// mirrorPrefix begins the names of streams that are mirrors.
const mirrorPrefix = "MIRROR_"

// Mirror is the mirror of another master's journal. It can be read as a journal can.
type Mirror struct {
	Name string // of the journal
	source
}

// Mirrors are those in the JetStream that nc is connected to.
func Mirrors(ctx context.Context, nc *nats.Conn) (list []*Mirror, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		of, ok := strings.CutPrefix(name, mirrorPrefix)
		if !ok {
			continue
		}
		s, err := js.Stream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("open the mirror of %s: %w", of, err)
		}
		list = append(list, newMirror(of, js, s))
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("list the mirrors: %w", err)
	}
	return list, nil
}

func newMirror(of string, js jetstream.JetStream, s jetstream.Stream) *Mirror {
	return &Mirror{Name: of, source: source{name: s.CachedInfo().Config.Name, js: js, stream: s, closed: closing(js.Conn())}}
}

// OpenMirror opens the mirror of a journal, for the one that is called reader, making it
// where it is missing.
func OpenMirror(ctx context.Context, nc *nats.Conn, of bus.Link, o Options) (*Mirror, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	most := int64(-1)
	if o.MaxBytes > 0 {
		most = o.MaxBytes
	}
	s, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: mirrorPrefix + of.Owner, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		MaxAge: o.MaxAge, MaxBytes: most, AllowDirect: true, MirrorDirect: true,
		Mirror: &jetstream.StreamSource{Name: Stream, External: &jetstream.ExternalStream{APIPrefix: of.API(), DeliverPrefix: of.Deliver()}},
	})
	if err != nil {
		return nil, fmt.Errorf("open the mirror of %s: %w", of.Owner, storageError(err))
	}
	return newMirror(of.Owner, js, s), nil
}

// Detach ends the mirroring of a journal that is no more: what is there stays until it is too
// old.
func (m *Mirror) Detach(ctx context.Context) error {
	c := m.stream.CachedInfo().Config
	if c.Mirror == nil {
		return nil
	}
	c.Mirror, c.MirrorDirect = nil, false
	_, err := m.js.UpdateStream(ctx, c)
	return err
}

// Drop removes the mirror.
func (m *Mirror) Drop(ctx context.Context) error {
	err := m.js.DeleteStream(ctx, m.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}

// Progress is how a mirror stands to its journal.
type Progress struct {
	Active time.Duration // since something came; negative if nothing has
	Lag    uint64        // messages that are not here yet, as far as is known
}

// Progress asks for it.
func (m *Mirror) Progress(ctx context.Context) (Progress, error) {
	info, err := m.stream.Info(ctx)
	if err != nil {
		return Progress{}, fmt.Errorf("look at the mirror of %s: %w", m.Name, err)
	}
	if info.Mirror == nil {
		return Progress{Active: -1}, nil
	}
	return Progress{Active: info.Mirror.Active, Lag: info.Mirror.Lag}, nil
}
