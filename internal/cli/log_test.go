package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
)

// logged runs a program that logs a line of each of three levels.
func logged(t *testing.T, s cli.LogSettings, args ...string) (code int, stderr string) {
	t.Helper()
	program := spec()
	program.Run = func(_ context.Context, env *cli.Env, opts *urcli.Context) error {
		log, err := env.OpenLog(opts, s)
		if err != nil {
			return err
		}
		log.Info("small")
		log.Warn("middle")
		log.Error("large")
		return log.Close()
	}
	w := newWorld("", args...)
	return w.Run(t.Context(), program), w.err.String()
}

func TestOpenLogLevels(t *testing.T) {
	const small, middle, large = "[INFO    ] small\n", "[WARNING ] middle\n", "[ERROR   ] large\n"
	for _, tc := range []struct {
		name, configured, args, want string
	}{
		{"neither says anything", "", "", middle + large},
		{"the configuration", "error", "", large},
		{"the option goes before", "error", "--log-level=info", small + middle + large},
		{"quiet", "error", "--log-level=quiet", ""},
		{"-q", "info", "-q", large},
		{"-q adds nothing", "quiet", "-q", ""},
		{"-q is the weaker one", "", "-q --log-level=info", small + middle + large},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, got := logged(t, cli.LogSettings{Level: tc.configured}, strings.Fields(tc.args)...)
			if code != cli.OK || got != tc.want {
				t.Errorf("code %d, log %q; want %q", code, got, tc.want)
			}
		})
	}
}

func TestOpenLogFile(t *testing.T) {
	dir := t.TempDir()
	configured, given := filepath.Join(dir, "configured"), filepath.Join(dir, "given")
	if code, got := logged(t, cli.LogSettings{Level: "quiet", FileLevel: "error", File: configured}); code != cli.OK || got != "" {
		t.Errorf("code %d, stderr %q", code, got)
	}
	logged(t, cli.LogSettings{File: configured}, "--log-file", given, "--log-file-level=info")
	for path, want := range map[string]int{configured: 1, given: 3} {
		text, err := os.ReadFile(path)
		if err != nil || strings.Count(string(text), "\n") != want {
			t.Errorf("%s holds %q, %v; want %d lines", path, text, err, want)
		}
	}
}

func TestOpenLogUnwritable(t *testing.T) {
	s := cli.LogSettings{File: filepath.Join(t.TempDir(), "missing", "log")}
	code, got := logged(t, s)
	if code != cli.OK || !strings.HasPrefix(got, "salt-try: warning: open log file: ") || !strings.HasSuffix(got, "] large\n") {
		t.Errorf("a tool: code %d, stderr %q", code, got)
	}
	s.FileRequired = true
	code, got = logged(t, s)
	if code != cli.Failed || !strings.HasPrefix(got, "salt-try: error: open log file: ") || strings.Contains(got, "large") {
		t.Errorf("a daemon: code %d, stderr %q", code, got)
	}
}

func TestOpenLogBadLevel(t *testing.T) {
	if code, got := logged(t, cli.LogSettings{Level: "loud"}); code != cli.Failed || !strings.Contains(got, `unknown log level "loud"`) {
		t.Errorf("code %d, stderr %q", code, got)
	}
}

func TestConfigDir(t *testing.T) {
	for _, tc := range []struct{ args, env, want string }{
		{"", "", cli.DefaultConfigDir},
		{"", "/srv/salt", "/srv/salt"},
		{"-c etc", "/srv/salt", "etc"},
	} {
		w := newWorld("", strings.Fields(tc.args)...)
		w.Getenv = func(name string) string { return map[string]string{"SALT_CONFIG_DIR": tc.env}[name] }
		s := spec()
		s.Run = func(_ context.Context, env *cli.Env, opts *urcli.Context) error {
			if got := env.ConfigDir(opts); got != tc.want {
				t.Errorf("%q with %q: ConfigDir = %q, want %q", tc.args, tc.env, got, tc.want)
			}
			return nil
		}
		w.Run(t.Context(), s)
	}
}
