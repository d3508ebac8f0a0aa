package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/test/deadline"
)

// deaf is the way of a daemon to itself that does not lead there.
type deaf struct{}

func (deaf) Check(context.Context) error { return errors.New("nobody answers") }
func (deaf) Close()                      {}

// well is one that does.
type well struct{}

func (well) Check(context.Context) error { return nil }
func (well) Close()                      {}

// hang is the life of a daemon that does not serve, and whose inside hangs when it is to stop.
func hang(how string) {
	failed := make(chan error, 1)
	l := Life{Name: "daemon", Self: well{}, Every: time.Millisecond, Stop: time.Millisecond, Failed: failed, Log: slog.New(slog.DiscardHandler)}
	if how == "-deaf" {
		l.Self = deaf{}
	} else {
		failed <- errors.New("its bus has died")
	}
	var group sync.WaitGroup
	_, err := l.Live(context.Background(), context.Background(), &group)
	fmt.Println("it ends:", err)
	time.AfterFunc(time.Minute, func() { os.Exit(0) })
	select {} // nobody calls what Live returned
}

// TestADaemonThatCannotStopIsEnded: one that does not serve must not stay where its inside hangs, or it would
// hold its port and its lock forever. It says where it hangs.
func TestADaemonThatCannotStopIsEnded(t *testing.T) {
	for how, want := range map[string]string{"-failed": "it ends: its bus has died", "-deaf": "it ends: the daemon does not serve its own requests"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := exec.Command(os.Args[0], how)
			c.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(t.TempDir(), "nobody"))
			out, err := c.CombinedOutput()
			var exit *exec.ExitError
			if text := string(out); !errors.As(err, &exit) || !strings.Contains(text, want) || !strings.Contains(text, "SIGABRT: abort") || !strings.Contains(text, "daemon.hang(") {
				t.Errorf("it ended with %v, and said\n%.2000s", err, out)
			}
		})
	}
}

// TestADaemonWhoseBusHasDiedEnds: at once, and not when it has noticed that it is deaf.
func TestADaemonWhoseBusHasDiedEnds(t *testing.T) {
	died := errors.New("its bus has died")
	failed := make(chan error, 1)
	failed <- died
	work, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	stopped, err := Life{Name: "daemon", Self: well{}, Failed: failed, Log: slog.New(slog.DiscardHandler)}.Live(t.Context(), work, &group)
	stopped()
	cancel()
	deadline.Call(t, group.Wait, "group")
	if !errors.Is(err, died) {
		t.Errorf("it ends with %v, want %v", err, died)
	}
}

// TestAHangupDoesNotDelayTheStop: what a daemon reads again at a SIGHUP may hang, for example a fact of the
// machine. It is stopped nevertheless; and the next SIGHUP waits for the former one.
func TestAHangupDoesNotDelayTheStop(t *testing.T) {
	signals, begun := make(chan os.Signal, 2), make(chan struct{}, 2)
	signals <- syscall.SIGHUP
	signals <- syscall.SIGHUP
	work, cancel := context.WithCancel(t.Context())
	stop, end := context.WithCancel(t.Context())
	var group sync.WaitGroup
	ended := make(chan error, 1)
	go func() {
		_, err := Life{Name: "daemon", Self: well{}, Hangups: signals, Hangup: func() { begun <- struct{}{}; <-work.Done() }, Log: slog.New(slog.DiscardHandler)}.Live(stop, work, &group)
		ended <- err
	}()
	deadline.Receive(t, begun, "the first SIGHUP")
	end()
	if err := deadline.Receive(t, ended, "the end"); err != nil {
		t.Error(err)
	}
	cancel()
	group.Wait()
	if len(begun) > 0 {
		t.Error("two at the same time")
	}
}
