package client

import (
	"context"
	"errors"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// TestACallerLearnsWhatAStartWaitsFor, and gets the start that follows.
func TestACallerLearnsWhatAStartWaitsFor(t *testing.T) {
	b := bustest.Start(t)
	b.Server.Handle(bustest.Probe(bus.RoleUser, "echo"), func(ctx context.Context, r *rpc.Request) error {
		if err := r.Send(ctx, job.Start{Waiting: "a leader"}); err != nil {
			return err
		}
		return r.Send(ctx, job.Start{JID: "20260101000000000001"})
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	c := b.As(t, bus.RoleUser, "")
	conn := rpc.NewConn(c.Conn, c.Self) // one for both: the end of the first answer may come when the second is awaited
	for _, informed := range []bool{true, false} {
		stream, err := conn.Call("echo", "x")
		if err != nil {
			t.Fatal(err)
		}
		heard := ""
		waiting := func(what string) { heard += what }
		if !informed {
			waiting = nil
		}
		start, err := readStart(t.Context(), stream, waiting)
		if err != nil || start.JID != "20260101000000000001" || informed && heard != "a leader" {
			t.Errorf("%+v, %v, after %q", start, err, heard)
		}
	}
}

// TestACallerLearnsWhatReturnsWaitFor, and gets no line of that.
func TestACallerLearnsWhatReturnsWaitFor(t *testing.T) {
	b := bustest.Start(t)
	b.Server.Handle(bustest.Probe(bus.RoleUser, "echo"), func(ctx context.Context, r *rpc.Request) error {
		if err := r.Send(ctx, job.Start{JID: "20260101000000000001"}); err != nil {
			return err
		}
		text, err := job.Update{Waiting: "a leader"}.Append(nil)
		if err == nil {
			text, err = job.Update{ID: "web1", Report: job.Report{State: job.Done}}.Append(append(text, '\n'))
		}
		if err != nil {
			return err
		}
		return r.SendRaw(ctx, text)
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	c := b.As(t, bus.RoleUser, "")
	conn := &Conn{rpc: rpc.NewConn(c.Conn, c.Self)}
	for _, informed := range []bool{true, false} {
		heard := ""
		waiting := func(what string) { heard += what }
		if !informed {
			waiting = nil
		}
		j, err := conn.job(t.Context(), "echo", "x", waiting)
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range j.Returns(t.Context()) {
			if err != nil || r.Minion != "web1" || r.Status != Done || informed && heard != "a leader" {
				t.Errorf("%+v, %v, after %q", r, err, heard)
			}
		}
	}
}

// TestACallerLearnsWhatEventsWaitFor, and gets the result that follows.
func TestACallerLearnsWhatEventsWaitFor(t *testing.T) {
	b := bustest.Start(t)
	b.Server.Handle(bustest.Probe(bus.RoleUser, "echo"), func(ctx context.Context, r *rpc.Request) error {
		if err := r.Send(ctx, protocol.Fired{Waiting: "a leader"}); err != nil {
			return err
		}
		return r.Last(ctx, protocol.Fired{Outcome: protocol.Stored, Seq: 7})
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	c := b.As(t, bus.RoleUser, "")
	stream, err := rpc.NewConn(c.Conn, c.Self).Call("echo", "x")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	heard := ""
	if seq, err := readFired(t.Context(), stream, func(what string) { heard += what }); err != nil || seq != 7 || heard != "a leader" {
		t.Errorf("%d, %v, after %q", seq, err, heard)
	}
}

// TestKindsOfRunnerErrors: a program can tell a refusal, a store that cannot be asked now, and wrong arguments from a failure.
func TestKindsOfRunnerErrors(t *testing.T) {
	for code, want := range map[int]error{1: ErrFailed, protocol.RunRefused: ErrDenied, protocol.RunUnavailable: ErrUnavailable, protocol.RunUsage: ErrUsage} {
		if err := runError("cluster.backup", protocol.RunResult{Error: "it has no leader", Retcode: code}); !errors.Is(err, want) || err.Error() != "it has no leader" {
			t.Errorf("code %d: %v, want %v", code, err, want)
		}
	}
	if err := runError("mine.f", protocol.RunResult{Retcode: protocol.RunUnavailable}); !errors.Is(err, ErrFailed) || errors.Is(err, ErrUnavailable) {
		t.Errorf("a runner that has returned this code itself: %v", err)
	}
}
