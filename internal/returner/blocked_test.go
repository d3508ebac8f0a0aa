//go:build unix

package returner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/test/deadline"
)

// TestAReturnerThatDoesNotReturn: the job ends, and the next returner gets the return.
func TestAReturnerThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let, reached := make(chan struct{}), false
		s := Set{log: host(t, nil).Log, ready: []ready{
			{&Returner{Name: "stuck"}, func(context.Context, Return) error { <-let; return nil }, "", false},
			{&Returner{Name: "broken"}, func(context.Context, Return) error { panic("x") }, "", false},
			{&Returner{Name: "last"}, func(context.Context, Return) error { reached = true; return nil }, "", false},
		}}
		done := make(chan struct{})
		go func() { defer close(done); s.Late(t.Context(), sample) }()
		time.Sleep(sendTime + sendGrace)
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("it is waited for without end")
		}
		close(let)
		<-done
		if !reached {
			t.Error("the last one was not reached")
		}
	})
}

// TestAReturnerIsNotAbandonedTwice: it is called again only when it has returned.
func TestAReturnerIsNotAbandonedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let, calls := make(chan struct{}), 0
		stuck := &Returner{Name: "stuck"}
		h := host(t, nil)
		h.Abandoned = &Abandoned{}
		late := func(call string) time.Duration {
			s, err := Open(nil, Options{}, h)
			if err != nil {
				t.Fatal(err)
			}
			s.ready = []ready{{stuck, func(context.Context, Return) error { calls++; <-let; return nil }, call, false}}
			start := time.Now()
			s.Late(t.Context(), sample)
			synctest.Wait()
			return time.Since(start)
		}
		if took := late("a"); took != sendTime+sendGrace || calls != 1 {
			t.Errorf("the first one: %d calls in %v", calls, took)
		}
		for range 2 {
			if took := late("a"); took != 0 || calls != 1 {
				t.Errorf("while it has not returned: %d calls in %v", calls, took)
			}
		}
		if late("b"); calls != 2 {
			t.Error("with other options it is not called")
		}
		close(let)
		synctest.Wait()
		if took := late("a"); took != 0 || calls != 3 {
			t.Errorf("when it has returned: %d calls in %v", calls, took)
		}
	})
}

// TestSoManyCallsOfAReturner: however many jobs have a returner that does not return, and whatever options they have, it
// is called only so many times, and its calls go on when one has returned. Others are called meanwhile.
func TestSoManyCallsOfAReturner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Abandoned
		var calls atomic.Int32
		stuck, let := &Returner{Name: "stuck"}, make(chan struct{})
		send := func(context.Context, Return) error { calls.Add(1); <-let; return nil }
		const more = 10
		ended := make(chan error, maxCalls+more)
		for n := range maxCalls + more {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), sendTime)
				defer cancel()
				ended <- ready{stuck, send, fmt.Sprint(n), false}.within(ctx, sample, &a)
			}()
		}
		synctest.Wait()
		if n := calls.Load(); n != maxCalls {
			t.Errorf("it is called %d times", n)
		}
		other := ready{&Returner{Name: "other"}, func(context.Context, Return) error { return nil }, "", false}
		if err := other.within(t.Context(), sample, &a); err != nil {
			t.Errorf("another one: %v", err)
		}
		let <- struct{}{}
		synctest.Wait()
		if err := <-ended; err != nil || calls.Load() != maxCalls+1 {
			t.Errorf("when one has returned there are %d calls: %v", calls.Load(), err)
		}
		for range maxCalls + more - 1 {
			if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("one ends with %v", err)
			}
		}
		close(let)
		synctest.Wait()
		if len(a.calls) > 0 || len(a.under["stuck"]) > 0 {
			t.Errorf("in the end there are %v, and %d under way", a.calls, len(a.under["stuck"]))
		}
	})
}

// TestCallsWithOwnSettingsLeaveRoom: a user whose jobs have settings of their own for a returner, each other ones with
// which it does not return, keeps it from nobody who uses it with the settings of the minion.
func TestCallsWithOwnSettingsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Abandoned
		var calls atomic.Int32
		r, let := &Returner{Name: "stuck"}, make(chan struct{})
		var ended sync.WaitGroup
		for n := range maxCalls + 10 {
			ended.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), sendTime)
				defer cancel()
				_ = ready{r, func(context.Context, Return) error { calls.Add(1); <-let; return nil }, fmt.Sprint(n), true}.within(ctx, sample, &a)
			})
		}
		synctest.Wait()
		if n := calls.Load(); n != maxOwnCalls {
			t.Errorf("it is called %d times with settings of jobs", n)
		}
		if err := (ready{r, func(context.Context, Return) error { return nil }, "", false}).within(t.Context(), sample, &a); err != nil {
			t.Errorf("with those of the minion: %v", err)
		}
		ended.Wait()
		if err := (ready{r, func(context.Context, Return) error { return nil }, "", false}).within(t.Context(), sample, &a); err != nil {
			t.Errorf("when all were abandoned: %v", err)
		}
		close(let)
		synctest.Wait()
		if len(a.under["stuck"])+len(a.own["stuck"]) > 0 {
			t.Error("in the end some are under way")
		}
	})
}

// TestAFIFOThatNobodyReads: it does not block the minion, nor does one whose reader has stopped reading.
func TestAFIFOThatNobodyReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	send, err := openFile(host(t, map[string]any{"rawfile_json.filename": path}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	deadline.Call(t, func() { err = send(t.Context(), sample) }, "send")
	if !errors.Is(err, syscall.ENXIO) {
		t.Errorf("without a reader: %v", err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	deadline.Call(t, func() {
		for err == nil {
			err = send(ctx, sample)
		}
	}, "send")
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("to a reader that does not read: %v", err)
	}
}

// TestASyslogThatDoesNotRead: lines arrive, and one that has no room ends with its context.
func TestASyslogThatDoesNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	sockets := []string{path + ".none", path}
	if err := writeSyslog(t.Context(), sockets, "salt-minion", []byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1000)
	n, err := log.Read(b)
	if got := string(b[:n]); err != nil || !strings.HasPrefix(got, "<14>") || !strings.Contains(got, " salt-minion[") || !strings.HasSuffix(got, "]: hello\n") {
		t.Errorf("the line is %q, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	deadline.Call(t, func() {
		for err == nil {
			err = writeSyslog(ctx, sockets, "x", []byte("more\n"))
		}
	}, "write")
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without room: %v", err)
	}
}
