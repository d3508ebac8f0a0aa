//go:build unix

package returner

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
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
			{&Returner{Name: "stuck"}, func(context.Context, Return) error { <-let; return nil }, ""},
			{&Returner{Name: "broken"}, func(context.Context, Return) error { panic("x") }, ""},
			{&Returner{Name: "last"}, func(context.Context, Return) error { reached = true; return nil }, ""},
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
			s.ready = []ready{{stuck, func(context.Context, Return) error { calls++; <-let; return nil }, call}}
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
