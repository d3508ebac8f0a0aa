package runnerjob

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/semaphore"
)

// stored are events in their order.
type stored []event.Event

// Read implements Journal, also for queries for the starts of jobs.
func (s stored) Read(_ context.Context, q journal.Query, f func(event.Event) error) error {
	for _, e := range s {
		if len(q.Subjects) == 1 && strings.HasSuffix(q.Subjects[0], ".new") && event.JobKind(e.Tag) != "new" {
			continue
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

func principal(id string) authz.Principal {
	return new(authz.Authorizer).Peer(bus.Identity{Role: bus.RoleMinion, Name: id})
}

// TestOnlyTheirOwnEvents: of the jobs of others, of jobs whose start is not there or cannot be
// read, and of what is not a job, nothing is shown.
func TestOnlyTheirOwnEvents(t *testing.T) {
	who := principal("web1")
	tagged := func(tag, user string) event.Event {
		data, err := json.Marshal(map[string]any{"user": user})
		if err != nil {
			t.Fatal(err)
		}
		return event.Event{Tag: tag, Data: data}
	}
	s := &Server{lookups: semaphore.New(1)}
	s.Journal = stored{
		tagged("salt/job/1/new", who.Name()), tagged("salt/job/1/ret/db1", "of the return"),
		tagged("salt/job/2/new", "root"), tagged("salt/job/2/ret/web1", who.Name()),
		tagged("salt/job/3/ret/web1", who.Name()), // its start was removed
		{Tag: "salt/job/4/new", Data: []byte(`["user"]`)}, tagged("salt/job/4/ret/web1", who.Name()),
		tagged("salt/run/1/ret", who.Name()), tagged("my/job/1/new", who.Name()), tagged("salt/job/1", who.Name()),
		tagged("salt/job/1/ret/web2", "also"),
	}
	var got []string
	err := s.ownEvents(t.Context(), who, journal.Query{}, func(e event.Event) error {
		got = append(got, e.Tag)
		return nil
	})
	if want := []string{"salt/job/1/new", "salt/job/1/ret/db1", "salt/job/1/ret/web2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("shown: %q, %v; want %q", got, err, want)
	}
}

// TestEventsFromBeforeTheStart: the journal of another member may have events from before the
// start of the job, by its clock.
func TestEventsFromBeforeTheStart(t *testing.T) {
	who := principal("web1")
	tagged := func(tag, user string) event.Event {
		return event.Event{Tag: tag, Data: []byte(`{"user":"` + user + `"}`)}
	}
	s := &Server{lookups: semaphore.New(1)}
	s.Journal = stored{tagged("salt/job/1/ret/db1", ""), tagged("salt/job/1/new", who.Name()), tagged("salt/job/2/ret/db1", ""), tagged("salt/job/2/new", "root")}
	shown := 0
	err := s.ownEvents(t.Context(), who, journal.Query{Subjects: []string{"salt.event.salt.job.1.*"}}, func(event.Event) error { shown++; return nil })
	if err != nil || shown != 2 {
		t.Errorf("%d events are shown, %v; want the start and the return", shown, err)
	}
}

// TestRunnersNobodyWaitsForAreBounded: those of each principal by themselves, until one ends.
func TestRunnersNobodyWaitsForAreBounded(t *testing.T) {
	var u unwatched
	web1, db1 := principal("web1"), principal("db1")
	var end func()
	for range maxUnwatched {
		var err error
		if end, err = u.begin(web1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := u.begin(web1); rpc.CodeOf(err) != rpc.Busy {
		t.Errorf("one more: %v, want it refused for now", err)
	}
	if _, err := u.begin(db1); err != nil {
		t.Errorf("of another principal: %v", err)
	}
	end()
	if _, err := u.begin(web1); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
