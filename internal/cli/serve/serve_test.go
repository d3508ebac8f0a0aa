package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"strings"
	"syscall"
	"testing"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/daemon"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// TestFailures: why a daemon could not start is told by its exit code, as a service manager
// reads it: 64 is not tried again, 77 is not for this user, and the rest may pass.
func TestFailures(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "/x", Err: fs.ErrPermission}
	for _, test := range []struct {
		err  error
		want int
		hint string
	}{
		{syscall.ENOSPC, cli.Failed, "disk is full"},
		{pki.ErrUnsafe, cli.NoPermission, ""},
		{denied, cli.NoPermission, "set root_dir"},
		{salt.WithHint(denied, "its own hint"), cli.NoPermission, "its own hint"},
		{config.Mistake(errors.New("bad")), cli.Usage, ""},
		{daemon.ErrNewer, cli.Usage, ""},
		{errors.New("port taken"), cli.Failed, ""},
	} {
		err := Failed(fmt.Errorf("start: %w", test.err))
		if cli.Code(err) != test.want || !strings.Contains(salt.Hint(err), test.hint) || !errors.Is(err, test.err) {
			t.Errorf("%v ends with %d and the hint %q, want %d and %q", test.err, cli.Code(err), salt.Hint(err), test.want, test.hint)
		}
	}
}

// TestTheHintFitsTheUser: only who is not root, and has not started it as root, is told to be root.
func TestTheHintFitsTheUser(t *testing.T) {
	for _, c := range []struct {
		root, switched bool
		want           string
	}{{false, false, "start it as root"}, {true, false, "root already"}, {false, true, "give it to that user"}} {
		if got := deniedHint(c.root, c.switched); !strings.Contains(got, c.want) || strings.Contains(got, "start it as root") == (c.root || c.switched) {
			t.Errorf("root %t, switched %t: %q", c.root, c.switched, got)
		}
	}
}

// TestCheckTellsEverything: each mistake and each oddity has its line, and only mistakes
// decide the exit code.
func TestCheckTellsEverything(t *testing.T) {
	mistake := &config.Error{File: "master", Line: 3, Column: 5, Key: "ret_port", Err: salt.WithHint(errors.New("no port"), "between 1 and 65535")}
	odd := Checked{
		Notices:  []config.Notice{{File: "master.d/a.conf", Line: 2, Column: 1, Key: "hash_type", Text: "has no effect"}, {Key: "x", Text: "nowhere"}},
		Warnings: []config.Place{{Where: "master:9", Column: 4, Key: "publisher_acl", Text: "it has no effect"}},
	}
	warnings := "master.d/a.conf:2:1: warning: hash_type: has no effect\nwarning: x: nowhere\nmaster:9:4: warning: publisher_acl: it has no effect\n"
	for _, test := range []struct {
		name string
		err  error
		code int
		says string
	}{
		{"odd", nil, 0, warnings},
		{"wrong", config.Mistake(mistake), cli.Usage, "master:3:5: error: ret_port: no port\n  hint: between 1 and 65535\n" + warnings},
		{"two mistakes", config.Mistake(config.Join(mistake, errors.New("another"))), cli.Usage, "master:3:5: error: ret_port: no port\n  hint: between 1 and 65535\nerror: another\n" + warnings},
		{"not to be read", &fs.PathError{Op: "open", Path: "master", Err: fs.ErrPermission}, cli.NoPermission, "error: open master: permission denied\n" + warnings},
	} {
		var out strings.Builder
		c := odd
		c.Err = test.err
		if err := Check(&cli.Env{Stdout: &out}, c); cli.Code(err) != test.code || out.String() != test.says {
			t.Errorf("%s: %d and\n%s\nwant %d and\n%s", test.name, cli.Code(err), out.String(), test.code, test.says)
		}
	}
}

// typed runs f with the options of a daemon's command line.
func typed(t *testing.T, args []string, f func(*cli.Env, *urcli.Context) error) int {
	t.Helper()
	env := &cli.Env{Name: "salt-master", Args: args, Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }}
	return env.Run(t.Context(), cli.Spec{Flags: Flags(), Run: func(_ context.Context, env *cli.Env, opts *urcli.Context) error { return f(env, opts) }})
}

func TestOptions(t *testing.T) {
	for line, want := range map[string]struct {
		dir  string
		over map[string]any
	}{
		"":                                {"", map[string]any{}},
		"-c /srv/etc -u salt":             {"/srv/etc", map[string]any{"user": "salt"}},
		"--pid-file /run/x -u salt":       {"", map[string]any{"user": "salt", "pidfile": "/run/x"}},
		"-c " + cli.DefaultConfigDir:      {"", map[string]any{}},
		"--pid-file= -c /srv/etc --check": {"/srv/etc", map[string]any{"pidfile": ""}},
	} {
		code := typed(t, strings.Fields(line), func(env *cli.Env, opts *urcli.Context) error {
			if dir, over := Dir(env, opts), Overrides(opts); dir != want.dir || !maps.Equal(over, want.over) {
				t.Errorf("%q: the directory is %q and the settings %v, want %q and %v", line, dir, over, want.dir, want.over)
			}
			return nil
		})
		if code != 0 {
			t.Errorf("%q ends with %d", line, code)
		}
	}
}

// TestTheBackgroundIsNotAmongOtherLetters: what the daemon in the background is started with
// is the same command line without -d, so -d must be a word of its own.
func TestTheBackgroundIsNotAmongOtherLetters(t *testing.T) {
	err := background(t.Context(), &cli.Env{Args: []string{"-dc", "/srv/etc"}})
	if cli.Code(err) != cli.Usage || !strings.Contains(err.Error(), "stand alone") {
		t.Errorf("%v, %d", err, cli.Code(err))
	}
}
