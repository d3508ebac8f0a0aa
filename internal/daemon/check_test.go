package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSelfCheckEndsADeafDaemon(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		results string // of one check after the other; what follows is a success
		checks  int    // after which it ends; 0 is never
	}{
		"serves":           {"", 0},
		"fails twice":      {"xx", 0},
		"fails off and on": {"xx.xx.x", 0},
		"fails":            {"xxx", 3},
		"fails later":      {"..xx.xxx", 8},
		"hangs":            {"hhh", 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				checks := 0
				err := SelfCheck{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Check: func(ctx context.Context) error {
					result := "."
					if checks < len(c.results) {
						result = c.results[checks : checks+1]
					}
					checks++
					switch result {
					case "x":
						return broken
					case "h":
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}}.Run(ctx)
				if want := c.checks > 0; errors.Is(err, ErrDeaf) != want {
					t.Errorf("got %v, want an end: %t", err, want)
				}
				if c.checks > 0 && checks != c.checks {
					t.Errorf("it ends after %d checks, want %d", checks, c.checks)
				}
			})
		})
	}
}

// TestWatchdogHearsOfSuccessOnly: silence is what systemd acts on.
func TestWatchdogHearsOfSuccessOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "1000")
	results := []error{nil, errors.New("broken"), nil, errors.New("broken"), errors.New("broken"), errors.New("broken")}
	checks := 0
	err = SelfCheck{Every: time.Millisecond, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Check: func(context.Context) error {
		checks++
		return results[checks-1]
	}}.Run(t.Context())
	if !errors.Is(err, ErrDeaf) {
		t.Errorf("it ends with %v", err)
	}
	if err := Notify("end"); err != nil {
		t.Fatal(err)
	}
	var heard []string
	for b := make([]byte, 100); ; {
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if string(b[:n]) == "end" {
			break
		}
		heard = append(heard, string(b[:n]))
	}
	if got := strings.Join(heard, " "); got != "WATCHDOG=1 WATCHDOG=1" {
		t.Errorf("the watchdog heard %q, want two words", got)
	}
}
