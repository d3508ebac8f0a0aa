package broker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"log/slog"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
)

// startLocal starts a broker with a local socket and a server on it.
func startLocal(t *testing.T, store string) (*Broker, *rpc.Server, string) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var srv *rpc.Server
	b, err := Start(Options{
		Name: "test", StoreDir: store, Log: log,
		Admit: func(p Peer) bus.Identity {
			return bus.Identity{Role: bus.RoleUser, Name: strconv.Itoa(int(p.Local.UID))}
		},
		Endpoints: localEndpoints,
		Gone: func(i bus.Identity) {
			srv.Gone(i.Inbox())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	srv = rpc.NewServer(b.Conn(), b.Owner, localEndpoints, log)
	t.Cleanup(srv.Stop)
	path := filepath.Join(t.TempDir(), "d.sock")
	if err := b.ServeLocal(path); err != nil {
		t.Fatal(err)
	}
	return b, srv, path
}

// localEndpoints are for these tests.
var localEndpoints = func() (list bus.Endpoints) {
	for _, op := range []string{"echo", "flood", "panic", "wait"} {
		list = append(list, bus.Endpoint{Op: op, Roles: []bus.Role{bus.RoleUser}, Check: bus.Own, Body: 64 << 20, Handler: op})
	}
	return list
}()

func TestRequestsOverTheLocalSocket(t *testing.T) {
	t.Parallel()
	_, srv, path := startLocal(t, "")
	left := make(chan struct{})
	srv.Handle("echo", func(ctx context.Context, r *rpc.Request) error {
		return r.SendRaw(ctx, r.Body)
	})
	srv.Handle("flood", func(ctx context.Context, r *rpc.Request) error {
		for n := range 20 {
			if err := r.Send(ctx, strings.Repeat(strconv.Itoa(n%10), 1<<20)); err != nil {
				return err
			}
		}
		return nil
	})
	srv.Handle("wait", func(ctx context.Context, r *rpc.Request) error {
		_ = r.Send(ctx, "waiting")
		<-ctx.Done()
		close(left)
		return ctx.Err()
	})
	srv.Handle("panic", func(context.Context, *rpc.Request) error { panic("boom") })
	if err := srv.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := rpc.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	big := strings.Repeat("x", 5<<20)
	var got string
	if err := c.Ask(ctx, "echo", big, &got); err != nil || got != big {
		t.Errorf("echo of 5 MiB: %d bytes, %v", len(got), err)
	}
	if err := c.Ask(ctx, "nosuch", 1, nil); rpc.CodeOf(err) != rpc.NotFound {
		t.Errorf("unknown request: %v", err)
	}
	if err := c.Ask(ctx, "panic", 1, nil); rpc.CodeOf(err) != rpc.Internal {
		t.Errorf("panicking handler: %v", err)
	}
	s, err := c.Call("flood", nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; ; n++ {
		b, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || len(b) != 1<<20+2 {
			t.Fatalf("message %d: %d bytes, %v", n, len(b), err)
		}
	}
	if n != 20 {
		t.Errorf("%d messages, want 20", n)
	}
	s, err = c.Call("wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(ctx); err != nil {
		t.Fatal(err)
	}
	c.Close()
	select {
	case <-left:
	case <-ctx.Done():
		t.Error("the handler was not told that its principal is gone")
	}
	if _, err := s.Next(ctx); !errors.Is(err, rpc.ErrLost) {
		t.Errorf("after close: %v, want ErrLost", err)
	}
}

func TestJournalKeepsEventsOverARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	long := json.RawMessage(`"` + strings.Repeat("y", 3<<20) + `"`)
	ctx := t.Context()
	start := func() (*Broker, *journal.Journal) {
		b, _, _ := startLocal(t, dir)
		j, err := journal.Open(ctx, b.Conn(), journal.Options{MaxAge: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return b, j
	}
	b, j := start()
	for i, data := range []json.RawMessage{json.RawMessage(`1`), long, json.RawMessage(`2`)} {
		e := event.Event{Tag: "mytag/x", Data: data, From: "web1"}
		for range 2 { // the second is a duplicate
			if _, err := j.Append(ctx, e, "web1/"+strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	tab, err := j.Table(ctx, "facts")
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Put(ctx, "web1.example.com", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	_, j = start()
	var got []event.Event
	if err := j.Read(ctx, journal.Query{Subjects: []string{event.Root + ".mytag.>"}}, func(e event.Event) error {
		got = append(got, e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || string(got[0].Data) != "1" || string(got[1].Data) != string(long) || string(got[2].Data) != "2" || got[2].From != "web1" {
		t.Errorf("read %d events", len(got))
	}
	if tab, err = j.Table(ctx, "facts"); err != nil {
		t.Fatal(err)
	}
	keys := ""
	if err := tab.Each(ctx, func(k string, _ []byte) { keys += k }); err != nil || keys != "web1.example.com" {
		t.Errorf("keys %q, %v", keys, err)
	}
}
