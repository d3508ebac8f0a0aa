package cli_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/version"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// world is an Env over buffers.
type world struct {
	*cli.Env
	out, err bytes.Buffer
}

func newWorld(stdin string, args ...string) *world {
	w := new(world)
	w.Env = &cli.Env{
		Name: "salt-try", Args: args,
		Stdin: strings.NewReader(stdin), Stdout: &w.out, Stderr: &w.err,
		Getenv: func(string) string { return "" },
	}
	return w
}

// spec returns a command line with an option of each kind. It prints what it
// was given.
func spec() cli.Spec {
	return cli.Spec{
		Synopsis: []string{"[options] TARGET FUNCTION [ARGUMENTS]", "--list=STATE"},
		Summary:  "Run a function on many minions and print what they return, one after the other, as the answers arrive.",
		Examples: []string{"salt-try '*' test.ping", "salt-try -l all"},
		Output:   true,
		Ignored:  []string{"skip-grains", "m,module-dirs="},
		Flags: []urcli.Flag{
			&urcli.IntFlag{Category: "Waiting", Name: "timeout", Aliases: []string{"t"}, Usage: "wait `SECONDS` for an answer"},
			&urcli.BoolFlag{Category: "Waiting", Name: "async", Usage: "do not wait at all"},
			&urcli.StringFlag{Category: "Keys", Name: "list", Aliases: []string{"l"}, Usage: "list the keys in `STATE`"},
			&urcli.BoolFlag{Category: "Keys", Name: "yes", Aliases: []string{"y"}, Usage: "answer all questions by yes"},
			&urcli.BoolFlag{Category: "Keys", Name: "secret", Hidden: true},
			&urcli.StringSliceFlag{Category: "Waiting", Name: "return", Usage: "hand results to `NAME` too"},
		},
		Run: func(_ context.Context, env *cli.Env, opts *urcli.Context) error {
			fmt.Fprintf(env.Stdout, "t=%d y=%t list=%q return=%q words=%q\n", opts.Int("timeout"),
				opts.Bool("y"), opts.String("list"), opts.StringSlice("return"), opts.Args().Slice())
			return nil
		},
	}
}

func TestRun(t *testing.T) {
	for _, tc := range []struct {
		name, args       string
		code             int
		wantOut, wantErr string // the whole of both
	}{
		{"options after the words", "web1 test.ping -t 5 -y",
			cli.OK, `t=5 y=true list="" return=[] words=["web1" "test.ping"]` + "\n", ""},
		{"the program's own -l goes before the common one", "-l all",
			cli.OK, `t=0 y=false list="all" return=[] words=[]` + "\n", ""},
		{"the last of repeated options wins, but for lists", "-t1 -t2 --return a,b --return c",
			cli.OK, `t=2 y=false list="" return=["a,b" "c"] words=[]` + "\n", ""},
		{"words that are names of options", "help timeout -- -y",
			cli.OK, `t=0 y=false list="" return=[] words=["help" "timeout" "-y"]` + "\n", ""},
		{"ignored options", "--progress --skip-grains -m dir --saltfile=x",
			cli.OK, `t=0 y=false list="" return=[] words=[]` + "\n",
			"salt-try: note: --saltfile has no effect in Brine\n" +
				"salt-try: note: --skip-grains has no effect in Brine\n" +
				"salt-try: note: --module-dirs has no effect in Brine\n"},
		{"an unknown option", "--bogus", cli.Usage, "",
			"salt-try: error: no such option: --bogus\n" +
				"salt-try: hint: --help shows all options\n" +
				"salt-try: hint: to pass --bogus as an argument, put -- before it\n"},
		{"a typing error", "--timoeut=3", cli.Usage, "",
			"salt-try: error: no such option: --timoeut\n" +
				"salt-try: hint: did you mean --timeout?\n" +
				"salt-try: hint: to pass --timoeut=3 as an argument, put -- before it\n"},
		{"a hidden option is not proposed", "--secreet", cli.Usage, "",
			"salt-try: error: no such option: --secreet\n" +
				"salt-try: hint: --help shows all options\n" +
				"salt-try: hint: to pass --secreet as an argument, put -- before it\n"},
		{"a bad log level", "--log-level=loud", cli.Usage, "",
			"salt-try: error: option --log-level: unknown log level \"loud\"\n" +
				"salt-try: hint: the levels are all, garbage, trace, debug, profile, info, warning, error, critical, quiet\n"},
		{"a bad output form", "--out=jsno", cli.Usage, "",
			"salt-try: error: option --out: no such outputter: \"jsno\"\n" +
				"salt-try: hint: the outputters are " + strings.Join(output.Names(), ", ") + "\n"},
		{"an escape sequence in an option", "--\x1b[2J", cli.Usage, "",
			`salt-try: error: no such option: --\x1b[2J` + "\n" +
				"salt-try: hint: --help shows all options\n" +
				`salt-try: hint: to pass --\x1b[2J as an argument, put -- before it` + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld("", strings.Fields(tc.args)...)
			code := w.Run(t.Context(), spec())
			if code != tc.code || w.out.String() != tc.wantOut || w.err.String() != tc.wantErr {
				t.Errorf("Run(%q) = %d\n out %q\nwant %q\n err %q\nwant %q (%d)",
					tc.args, code, w.out.String(), tc.wantOut, w.err.String(), tc.wantErr, tc.code)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"--help"}, {"web1", "-y", "test.ping", "--hel"}} {
		w := newWorld("", args...)
		if code := w.Run(t.Context(), spec()); code != cli.OK || w.err.Len() != 0 {
			t.Fatalf("Run(%q) = %d, stderr %q", args, code, w.err.String())
		}
		golden(t, "help.txt", w.out.Bytes())
		for line := range strings.Lines(w.out.String()) {
			if len(line) > 81 {
				t.Errorf("line of %d bytes: %s", len(line), line)
			}
		}
	}
}

// golden compares got with a file of testdata, or writes it with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s; got:\n%s", path, got)
	}
}

func TestVersion(t *testing.T) {
	for args, want := range map[string]string{
		"--version":         "salt-try " + version.Version() + " (Brine)\n",
		"-V":                "Brine Version:\n",
		"--versions-report": "System Versions:\n",
	} {
		w := newWorld("", args)
		if code := w.Run(t.Context(), spec()); code != cli.OK || !strings.Contains(w.out.String(), want) {
			t.Errorf("Run(%q) = %d, printed %q; want %q in it", args, code, w.out.String(), want)
		}
	}
}

func TestReport(t *testing.T) {
	plain := errors.New(`read minion key "web1": permission denied`)
	refused := cli.Fail(cli.NoPermission, errors.New("refused"))
	for _, tc := range []struct {
		name string
		err  error
		code int
		want string
	}{
		{"no error", nil, cli.OK, ""},
		{"an error", plain, cli.Failed, "salt-try: error: read minion key \"web1\": permission denied\n"},
		{"with a code", refused, cli.NoPermission, "salt-try: error: refused\n"},
		{"the outermost code counts", cli.Fail(cli.Usage, fmt.Errorf("x: %w", refused)), cli.Usage, "salt-try: error: x: refused\n"},
		{"with a hint inside", fmt.Errorf("start: %w", salt.WithHint(refused, "ask root")), cli.NoPermission,
			"salt-try: error: start: refused\nsalt-try: hint: ask root\n"},
		{"without words", cli.Exit(cli.NoReturn), cli.NoReturn, ""},
		{"of two lines", errors.Join(plain, errors.New("more")), cli.Failed,
			"salt-try: error: read minion key \"web1\": permission denied\nsalt-try: error: more\n"},
		{"with a cursor movement", errors.New("minion \x1b[1Aweb1\r"), cli.Failed, `salt-try: error: minion \x1b[1Aweb1\r` + "\n"},
		{"a broken pipe", fmt.Errorf("print: %w", cli.ErrBrokenPipe), cli.BrokenPipe, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld("")
			if code := w.Report(tc.err); code != tc.code || w.err.String() != tc.want {
				t.Errorf("Report(%v) = %d %q, want %d %q", tc.err, code, w.err.String(), tc.code, tc.want)
			}
		})
	}
}

func TestFailOfNilIsNil(t *testing.T) {
	if err := cli.Fail(cli.Usage, nil); err != nil {
		t.Errorf("Fail(Usage, nil) = %v", err)
	}
	if err := cli.Exit(cli.OK); err != nil {
		t.Errorf("Exit(OK) = %v", err)
	}
}

func TestOutputFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	write := func(text string, args ...string) {
		s := spec()
		s.Run = func(_ context.Context, env *cli.Env, opts *urcli.Context) error {
			w, err := env.OpenOutput(opts)
			if err != nil {
				return err
			}
			io.WriteString(w, text)
			return w.Close()
		}
		w := newWorld("", append(args, "--out-file", path)...)
		if code := w.Run(t.Context(), s); code != cli.OK || w.out.Len() != 0 {
			t.Fatalf("Run(%q) = %d, stdout %q, stderr %q", args, code, w.out.String(), w.err.String())
		}
	}
	write("a much longer text")
	write("one ")
	write("two", "--out-file-append")
	if got, _ := os.ReadFile(path); string(got) != "one two" {
		t.Errorf("the output file holds %q", got)
	}
}

func TestColor(t *testing.T) {
	for _, tc := range []struct {
		name, args, env string
		tty, want       bool
	}{
		{"a pipe", "", "", false, false},
		{"a terminal", "", "", true, true},
		{"refused by option", "--no-colour", "", true, false},
		{"refused by environment", "", "NO_COLOR=1", true, false},
		{"a dumb terminal", "", "TERM=dumb", true, false},
		{"into a file", "--out-file=x", "", true, false},
		{"forced", "--force-color", "NO_COLOR=1", false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld("", strings.Fields(tc.args)...)
			w.StdoutTTY = tc.tty
			w.Getenv = func(name string) string {
				value, _ := strings.CutPrefix(tc.env, name+"=")
				if value == tc.env {
					return ""
				}
				return value
			}
			s := spec()
			s.Run = func(_ context.Context, env *cli.Env, opts *urcli.Context) error {
				if got := env.Color(opts); got != tc.want {
					t.Errorf("Color = %t, want %t", got, tc.want)
				}
				return nil
			}
			if code := w.Run(t.Context(), s); code != cli.OK {
				t.Fatalf("Run = %d, %s", code, w.err.String())
			}
		})
	}
}

func TestOutputForm(t *testing.T) {
	for _, tc := range []struct {
		name, args string
		setting    string
		wantName   string
		want       output.Options
		wantIndent string
	}{
		{"a setting", "", "2", "key", output.Options{Color: true, Terminal: true}, "2"},
		{"a setting against the command line", "--out-indent 3", "2", "key", output.Options{Color: true, Terminal: true}, "3"},
		{"pretty", "", "pretty", "key", output.Options{Color: true, Terminal: true, Sorted: true}, "none"},
		{"a terminal", "", "", "key", output.Options{Color: true, Terminal: true}, "none"},
		{"given", "--out json --out-indent -1", "", "json", output.Options{Color: true, Terminal: true}, "-1"},
		{"a file", "--out-file=x", "", "key", output.Options{}, "none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld("", strings.Fields(tc.args)...)
			w.StdoutTTY = true
			s := spec()
			s.Run = func(_ context.Context, env *cli.Env, opts *urcli.Context) error {
				name, got := env.OutputForm(opts, "key", tc.setting)
				indent := "none"
				if got.Indent != nil {
					indent = fmt.Sprint(*got.Indent)
				}
				got.Indent = nil
				if name != tc.wantName || got != tc.want || indent != tc.wantIndent {
					t.Errorf("OutputForm = %q, %+v, indent %s; want %q, %+v, %s", name, got, indent, tc.wantName, tc.want, tc.wantIndent)
				}
				return nil
			}
			if code := w.Run(t.Context(), s); code != cli.OK {
				t.Fatalf("Run = %d, %s", code, w.err.String())
			}
		})
	}
}

func TestUsagef(t *testing.T) {
	cause := errors.New("cause")
	if err := cli.Usagef("wrong: %w", cause); cli.Code(err) != cli.Usage || !errors.Is(err, cause) || err.Error() != "wrong: cause" {
		t.Errorf("Usagef = %v, code %d", err, cli.Code(err))
	}
}
