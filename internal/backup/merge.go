package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/backoff"
)

const (
	// mergeWindow is how many entries are under way, and mergeBytes how many bytes of them: tables
	// with the files of minions have large entries.
	mergeWindow = 256
	mergeBytes  = 8 << 20
	// mergeRate is how many bytes of a backup are merged at least in a second.
	mergeRate = 1 << 20
)

// merge makes a shared table, if no other member has made it, and adds the entries that it lacks.
// What is there counts, also the mark of an entry that was deleted. One that was removed without a mark
// comes back.
func (r *restorer) merge(ctx context.Context, m move) error {
	settings, err := m.to.Configure(m.Settings, r.to.Copies)
	if err != nil {
		return err
	}
	err = r.early(ctx, true, func(ctx context.Context) error {
		return ask(ctx, r.nc, "STREAM.CREATE."+m.to.Stream(), json.RawMessage(settings), nil)
	})
	if err != nil && !errors.Is(err, errExists) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, beginTime+time.Duration(m.Bytes/mergeRate)*time.Second)
	defer cancel()
	for { // it may just be getting its leader
		if err = r.add(ctx, m); err == nil || !leaderless(err) || !backoff.Sleep(ctx, beginPause) {
			return err
		}
	}
}

// leaderless reports whether an entry was not stored for want of a leader, or of a connection to it.
func leaderless(err error) bool {
	var f *fault
	return passing(err) || early(err) || errors.As(err, &f) && (f.Code == codeNotLeader || f.Code == codeNotStored)
}

// add does it once. What an earlier attempt has added is there.
func (r *restorer) add(ctx context.Context, m move) error {
	f, err := m.open(r.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	inbox := r.nc.NewInbox()
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe() //nolint:errcheck // it ends with the connection at the latest
	underway, there := 0, 0
	count := func() error {
		is, err := added(ctx, sub)
		if is {
			there++
		}
		return err
	}
	newest, err := r.newest(m)
	if err != nil {
		return err
	}
	err = eachEntry(f, func(h *archive.Header, body []byte) error {
		if h.Sequence == 0 || h.Sequence < newest[h.Name] {
			return nil
		}
		body = r.change(m, h, body)
		if r.isOutdated(m, h, body) {
			return nil
		}
		entry, err := entryOf(h, body)
		if err != nil || entry == nil {
			return err
		}
		entry.Subject, entry.Reply = h.Name, inbox
		for most := max(1, min(mergeWindow, mergeBytes/(len(body)+1))); underway >= most; underway-- {
			if err := count(); err != nil {
				return err
			}
		}
		underway++
		if err := r.nc.PublishMsg(entry); err != nil {
			return unsent(err)
		}
		return nil
	})
	for ; err == nil && underway > 0; underway-- {
		err = count()
	}
	if there > 0 {
		r.there[m.to.Stream()] = there
	}
	return err
}

// newest returns the sequence of the newest entry of each subject: a kill may have left older ones beside it.
func (r *restorer) newest(m move) (map[string]uint64, error) {
	f, err := m.open(r.dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	newest := map[string]uint64{}
	err = eachEntry(f, func(h *archive.Header, _ []byte) error {
		newest[h.Name] = h.Sequence
		return nil
	})
	return newest, err
}

// isOutdated reports whether an entry stays out.
func (r *restorer) isOutdated(m move, h *archive.Header, body []byte) bool {
	key, ok := m.to.Entry(h.Name)
	return ok && r.to.Outdated != nil && h.PayloadSize > 0 && r.to.Outdated(m.to.Name, key, body[h.HeaderSize:])
}

// entryOf returns the message that stores an entry unless there is one; nil for the mark of a
// deleted one.
func entryOf(h *archive.Header, body []byte) (*nats.Msg, error) {
	entry := &nats.Msg{Header: nats.Header{}, Data: append([]byte{}, body[h.HeaderSize:]...)}
	if h.HeaderSize > 0 {
		header, err := nats.DecodeHeadersMsg(body[:h.HeaderSize])
		if err != nil {
			return nil, fmt.Errorf("the entry %.100q: %w", h.Name, err)
		}
		entry.Header = header
	}
	if op := entry.Header.Get("KV-Operation"); op == "DEL" || op == "PURGE" {
		return nil, nil
	}
	for key := range entry.Header {
		if strings.HasPrefix(key, "Nats-") {
			delete(entry.Header, key) // what the server was to do at that time
		}
	}
	entry.Header["Nats-Expected-Last-Subject-Sequence"] = []string{"0"}
	return entry, nil
}

// added waits for the answer about one entry: there says that it was not added, since there is one, or was.
func added(ctx context.Context, sub *nats.Subscription) (there bool, err error) {
	m, err := next(ctx, sub, chunkTime)
	if err != nil {
		return false, err
	}
	err = answered(m.Data, nil)
	var f *fault
	if errors.As(err, &f) && f.Code == codeWrongLast {
		return true, nil
	}
	return false, err
}
