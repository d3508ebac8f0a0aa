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

// Link lets other masters mirror the journal. It answers the one request that a mirror sends,
// for messages from a sequence on, and chooses itself which consumer sends them: the requests
// contain the settings of a consumer, which could ask for nearly anything, including delivery
// to any subject.
type Link struct {
	own      string     // name of the own journal
	dir      string     // of it
	nc       *nats.Conn // the daemon's connection to the journal
	links    *nats.Conn // the connection to the account of links
	log      *slog.Logger
	throttle logging.Throttle
	mu       sync.Mutex
	before   map[string]string // the consumer of each reader, by stream
}

// apiTime is how long the server may take to answer about a consumer.
const apiTime = 5 * time.Second

// NewLink starts to answer on links, which Close closes. The journal has the name own, and is in dir.
func (j *Journal) NewLink(own, dir string, links *nats.Conn, log *slog.Logger) (*Link, error) {
	l := &Link{own: own, dir: dir, nc: j.js.Conn(), links: links, log: log, before: map[string]string{}}
	for _, stream := range bus.LinkStreams {
		create := func(m *nats.Msg) { l.create(stream, m) }
		if _, err := links.Subscribe(bus.Link{Owner: own, Reader: "*"}.Create(stream), create); err != nil {
			return nil, fmt.Errorf("serve links: %w", err)
		}
	}
	return l, nil
}

// Close ends it.
func (l *Link) Close() { l.links.Close() }

// wanted is the part of a mirror's request that Link uses.
type wanted struct {
	Config struct {
		Deliver string `json:"deliver_subject"`
		Start   uint64 `json:"opt_start_seq"`
	} `json:"config"`
}

// create makes the consumer of a mirror. The reader's name is in the subject: the server lets a
// reader publish only to its own subject.
func (l *Link) create(stream string, m *nats.Msg) {
	to := bus.Link{Owner: l.own, Reader: strings.Split(m.Subject, ".")[2]}
	answer, err := l.answer(stream, to, m)
	if err == nil {
		err = m.RespondMsg(answer)
	}
	if err == nil {
		return
	}
	if left, due := l.throttle.Count("", time.Now(), maxLoggedOfLinks); due {
		l.log.Warn("a mirror of the journal was not served", "mirror", to.Reader, "err", err, "repeated", left)
	}
}

// maxLoggedOfLinks is how many refused requests are logged in a minute.
const maxLoggedOfLinks = 5

func (l *Link) answer(stream string, to bus.Link, m *nats.Msg) (*nats.Msg, error) {
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
	if err := l.forget(stream, to.Reader); err != nil {
		return nil, err
	}
	if err := l.warnOfACopy(stream, to, q.Config.Start); err != nil {
		return nil, err
	}
	body, err := json.Marshal(consumerFor(stream, to, q))
	if err != nil {
		return nil, err
	}
	ask := nats.NewMsg(jetstream.DefaultAPIPrefix + "CONSUMER.CREATE." + stream)
	ask.Data = body
	got, err := l.nc.RequestMsg(ask, apiTime)
	if err != nil {
		return nil, err
	}
	var made struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(got.Data, &made); err == nil && made.Name != "" {
		l.before[stream+" "+to.Reader] = made.Name
	}
	return &nats.Msg{Header: got.Header, Data: got.Data}, nil
}

// warnOfACopy logs if a mirror has more messages than this journal: it would not mirror
// anything until the journal has as many again, and nobody would notice.
func (l *Link) warnOfACopy(stream string, to bus.Link, start uint64) error {
	got, err := l.nc.Request(jetstream.DefaultAPIPrefix+"STREAM.INFO."+stream, nil, apiTime)
	if err != nil {
		return err
	}
	var info struct {
		State struct {
			Last uint64 `json:"last_seq"`
		} `json:"state"`
	}
	if err := json.Unmarshal(got.Data, &info); err != nil {
		return err
	}
	if start > info.State.Last+1 && l.throttle.First(copied, time.Now()) {
		l.log.Error("the other master has a mirror of more than this journal has, which was put back from a copy: what is new here does not count there. Stop this master, remove this file, and start it",
			"file", nameFile(l.dir), "mirror", to.Reader, "stream", stream, "mirrored", start-1, "here", info.State.Last)
	}
	return nil
}

// copied is the key for throttling that log line.
const copied = "copied"

// consumerFor returns the request for the consumer that a mirror's server needs.
func consumerFor(stream string, to bus.Link, q wanted) any {
	c := map[string]any{
		"name": "JS_MIRROR_" + to.Reader, "deliver_subject": q.Config.Deliver, "deliver_policy": "all",
		"ack_policy": "none", "max_deliver": 1, "ack_wait": 22 * time.Hour, "idle_heartbeat": time.Second, "flow_control": true,
		"direct": true, "sourcing": true, "inactive_threshold": 10 * time.Second, "replay_policy": "instant",
	}
	if q.Config.Start > 0 {
		c["deliver_policy"], c["opt_start_seq"] = "by_start_sequence", q.Config.Start
	}
	return map[string]any{"stream_name": stream, "config": c}
}

// forget removes the previous consumer of a reader, which has one at a time.
func (l *Link) forget(stream, reader string) error {
	name := l.before[stream+" "+reader]
	if name == "" {
		return nil
	}
	delete(l.before, stream+" "+reader)
	_, err := l.nc.Request(jetstream.DefaultAPIPrefix+"CONSUMER.DELETE."+stream+"."+name, nil, apiTime)
	return err
}

// mirrorPrefix is the prefix of the names of mirror streams.
const mirrorPrefix = "MIRROR_"

// Mirror is the mirror of another master's journal. It can be read like a journal.
type Mirror struct {
	Name string // of the journal
	source
}

// Mirrors returns those in the JetStream that nc is connected to.
func Mirrors(ctx context.Context, nc *nats.Conn, delays Delays) (list []*Mirror, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	err = insist(ctx, delays, "list the mirrors", func(ctx context.Context) (err error) {
		list, err = mirrors(ctx, js, delays)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the mirrors: %w", err)
	}
	return list, nil
}

func mirrors(ctx context.Context, js jetstream.JetStream, delays Delays) (list []*Mirror, err error) {
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
		list = append(list, newMirror(of, js, s, delays))
	}
	return list, names.Err()
}

func newMirror(of string, js jetstream.JetStream, s jetstream.Stream, delays Delays) *Mirror {
	return &Mirror{Name: of, source: source{name: s.CachedInfo().Config.Name, js: js, stream: s, closed: closing(js.Conn()), delays: delays}}
}

// OpenMirror opens the mirror of a journal, for the reader in of, and makes it if it is
// missing.
func OpenMirror(ctx context.Context, nc *nats.Conn, of bus.Link, delays Delays, o Options) (*Mirror, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	most := int64(-1)
	if o.MaxBytes > 0 {
		most = o.MaxBytes
	}
	config := jetstream.StreamConfig{
		Name: mirrorPrefix + of.Owner, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		MaxAge: o.MaxAge, MaxBytes: most, AllowDirect: true, MirrorDirect: true,
		Mirror: &jetstream.StreamSource{Name: Stream, External: &jetstream.ExternalStream{APIPrefix: of.API(), DeliverPrefix: of.Deliver()}},
	}
	var s jetstream.Stream
	err = insist(ctx, delays, "open the mirror of "+of.Owner, func(ctx context.Context) (err error) {
		s, err = makeMirror(ctx, js, config)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the mirror of %s: %w", of.Owner, storageError(err))
	}
	return newMirror(of.Owner, js, s, delays), nil
}

// mirrorNotUpdatable is what the server answers when a stream is to become a mirror, or that of
// another one.
const mirrorNotUpdatable jetstream.ErrorCode = 10055

// makeMirror makes a mirror if it is missing. One is removed and made again if the reader has
// another name now, or if an earlier version has ended it for good because its owner had another
// journal for a time: no stream becomes a mirror again. What the owner does not have any more is lost with it.
func makeMirror(ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := js.CreateOrUpdateStream(ctx, config)
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != mirrorNotUpdatable {
		return s, err
	}
	if err := js.DeleteStream(ctx, config.Name); err != nil {
		return nil, err
	}
	return js.CreateStream(ctx, config)
}

// Drop removes the mirror.
func (m *Mirror) Drop(ctx context.Context) error {
	err := m.js.DeleteStream(ctx, m.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}

// Progress is how far a mirror is.
type Progress struct {
	Active time.Duration // time since something came; negative if nothing has
	Lag    uint64        // messages not here yet, as far as known
}

// Progress returns how far the mirror is.
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
