package cli

import (
	"io"
	"slices"
	"strings"
	"testing"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/salt"
)

// tryFlags are options of each kind, with names that begin alike.
func tryFlags() []urcli.Flag {
	return []urcli.Flag{
		&urcli.IntFlag{Name: "timeout", Aliases: []string{"t"}},
		&urcli.StringFlag{Name: "log-level", Aliases: []string{"l"}},
		&urcli.StringFlag{Name: "log-file"},
		&urcli.StringFlag{Name: "batch", Aliases: []string{"b", "batch-size"}},
		&urcli.StringFlag{Name: "out", Aliases: []string{"output"}},
		&urcli.IntFlag{Name: "out-indent"},
		&urcli.StringFlag{Name: "accept", Aliases: []string{"a"}},
		&urcli.BoolFlag{Name: "yes", Aliases: []string{"y"}},
		&urcli.BoolFlag{Name: "quiet", Aliases: []string{"q"}},
		&urcli.BoolFlag{Name: "no-color", Aliases: []string{"no-colour"}},
		&urcli.DurationFlag{Name: "wait"},
		&urcli.Float64Flag{Name: "share"},
		&urcli.StringSliceFlag{Name: "return"},
		&urcli.StringFlag{Name: "x"}, // has no long name
	}
}

func TestNormalize(t *testing.T) {
	g := newGrammar(tryFlags())
	for _, tc := range []struct {
		name string
		args []string
		want string // words joined by blanks
	}{
		{"nothing", nil, "--"},
		{"options behind words", []string{"web1", "test.ping", "-t", "5", "--out", "json"}, "--timeout=5 --out=json -- web1 test.ping"},
		{"options between words", []string{"web1", "-y", "test.ping", "k=v"}, "--yes -- web1 test.ping k=v"},
		{"long with value attached", []string{"--out=json"}, "--out=json --"},
		{"long with empty value", []string{"--out="}, "--out= --"},
		{"value with equals sign", []string{"--out=a=b"}, "--out=a=b --"},
		{"beginning of a name", []string{"--time", "5", "--q"}, "--timeout=5 --quiet --"},
		{"beginning with value", []string{"--ti=5"}, "--timeout=5 --"},
		{"name that others begin with", []string{"--out", "x"}, "--out=x --"},
		{"beginning of two names of one option", []string{"--no-col", "--bat=1"}, "--no-color --batch=1 --"},
		{"second name", []string{"--output=x"}, "--out=x --"},
		{"short with value attached", []string{"-t5", "-lall", "-b1"}, "--timeout=5 --log-level=all --batch=1 --"},
		{"short with equals sign", []string{"-t=5"}, "--timeout=5 --"},
		{"cluster", []string{"-yq"}, "--yes --quiet --"},
		{"cluster that ends in a value", []string{"-yqt5"}, "--yes --quiet --timeout=5 --"},
		{"cluster with the value apart", []string{"-yt", "5", "w"}, "--yes --timeout=5 -- w"},
		{"no long name", []string{"-x", "1", "-x2"}, "-x=1 -x=2 --"},
		{"end of options", []string{"-y", "--", "-q", "--", "w"}, "--yes -- -q -- w"},
		{"a hyphen", []string{"-", "-y"}, "--yes -- -"},
		{"negative numbers", []string{"-1", "-0.5", "-.5", "-5m"}, "-- -1 -0.5 -.5 -5m"},
		{"negative number as value", []string{"--out-indent", "-1"}, "--out-indent=-1 --"},
		{"hyphen as value", []string{"-a", "-"}, "--accept=- --"},
		{"value that begins with a hyphen", []string{"-a", "-zzz"}, "--accept=-zzz --"},
		{"option as attached value", []string{"--accept=-y"}, "--accept=-y --"},
		{"repeated", []string{"-t1", "-t2"}, "--timeout=1 --timeout=2 --"},
		{"empty word", []string{"", "-y"}, "--yes -- "},
		{"number and duration", []string{"--share=.5", "--wait", "3s"}, "--share=.5 --wait=3s --"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := g.normalize(tc.args)
			if err != nil || strings.Join(got, " ") != tc.want {
				t.Errorf("normalize(%q) = %q, %v; want %q", tc.args, got, err, tc.want)
			}
		})
	}
}

func TestNormalizeNumberThatIsAnOption(t *testing.T) {
	g := newGrammar([]urcli.Flag{&urcli.BoolFlag{Name: "once", Aliases: []string{"1"}}})
	got, err := g.normalize([]string{"-1", "-2"})
	if want := []string{"--once", "--", "-2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("normalize = %q, %v; want %q", got, err, want)
	}
}

func TestNormalizeRefuses(t *testing.T) {
	g := newGrammar(tryFlags())
	for _, tc := range []struct {
		name      string
		args      []string
		err, hint string
	}{
		{"unknown long", []string{"--bogus"}, "no such option: --bogus",
			"--help shows all options\nto pass --bogus as an argument, put -- before it"},
		{"typing error", []string{"--quite"}, "no such option: --quite",
			"did you mean --quiet?\nto pass --quite as an argument, put -- before it"},
		{"name without value", []string{"--=5"}, "no such option: --",
			"--help shows all options\nto pass --=5 as an argument, put -- before it"},
		{"unknown short", []string{"-z"}, "no such option: -z",
			"--help shows all options\nto pass -z as an argument, put -- before it"},
		{"short of the other case", []string{"-T"}, "no such option: -T",
			"did you mean -t?\nto pass -T as an argument, put -- before it"},
		{"unknown in a cluster", []string{"-yzq"}, "no such option: -z",
			"--help shows all options\nto pass -yzq as an argument, put -- before it"},
		{"short name with two hyphens", []string{"--y=1"}, "--y option does not take a value", ""},
		{"ambiguous", []string{"--log"}, "ambiguous option: --log (--log-file, --log-level?)", ""},
		{"value for a switch", []string{"--yes=true"}, "--yes option does not take a value", ""},
		{"value for a short switch", []string{"-y=1"}, "-y option does not take a value", ""},
		{"no value", []string{"--out"}, "--out option requires an argument", ""},
		{"no value for a short", []string{"-yt"}, "-t option requires an argument", ""},
		{"option in place of a value", []string{"-a", "-y"}, "-a option requires an argument",
			"-y is an option itself; if it is meant as the value, write -a=-y"},
		{"end of options in place of a value", []string{"--accept", "--", "x"}, "--accept option requires an argument",
			"-- is an option itself; if it is meant as the value, write --accept=--"},
		{"no integer", []string{"-t", "soon"}, `option -t: invalid integer value: "soon"`, ""},
		{"no integer, attached", []string{"--timeout=1.5"}, `option --timeout: invalid integer value: "1.5"`, ""},
		{"no number", []string{"--share=half"}, `option --share: invalid number value: "half"`, ""},
		{"no duration", []string{"--wait=3"}, `option --wait: invalid duration value: "3"`, ""},
		{"not UTF-8", []string{"-\xff"}, "no such option: -\uFFFD",
			"--help shows all options\nto pass -\xff as an argument, put -- before it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := g.normalize(tc.args)
			if err == nil || got != nil || err.Error() != tc.err || salt.Hint(err) != tc.hint || Code(err) != Usage {
				t.Errorf("normalize(%q) = %q, %v (hint %q, code %d)\nwant %s (hint %q)",
					tc.args, got, err, salt.Hint(err), Code(err), tc.err, tc.hint)
			}
		})
	}
}

// FuzzNormalize: what is accepted is in a form that stays the same and that
// urfave/cli parses into the same words; what is refused gives nothing.
func FuzzNormalize(f *testing.F) {
	for _, line := range []string{
		"web1 test.ping -t 5 --out json", "-yqt5 -- -x", "-a -y", "--time=3 -1 -.5", "-\xff", "--=", "-t=0x10", "-x -x",
	} {
		f.Add(strings.ReplaceAll(line, " ", "\n"))
	}
	f.Fuzz(func(t *testing.T, lines string) {
		args := strings.Split(lines, "\n")
		normal, err := newGrammar(tryFlags()).normalize(args)
		if err != nil {
			if normal != nil || Code(err) != Usage {
				t.Fatalf("normalize(%q) = %q beside %v (%d)", args, normal, err, Code(err))
			}
			return
		}
		again, err := newGrammar(tryFlags()).normalize(normal)
		if err != nil || !slices.Equal(normal, again) {
			t.Fatalf("normalize(%q) = %q, %v: not the same again", normal, again, err)
		}
		wantWords(t, normal)
	})
}

// wantWords checks that urfave/cli finds in normal the words behind "--".
func wantWords(t *testing.T, normal []string) {
	t.Helper()
	e := &Env{Name: "salt-try", Stdout: io.Discard}
	app := e.app(tryFlags())
	want := normal[slices.Index(normal, "--")+1:]
	app.Action = func(opts *urcli.Context) error {
		if got := opts.Args().Slice(); !slices.Equal(got, want) {
			t.Errorf("%q was parsed into the words %q", normal, got)
		}
		return nil
	}
	if err := app.Run(append([]string{"salt-try"}, normal...)); err != nil {
		t.Errorf("%q was refused: %v", normal, err)
	}
}

// What urfave/cli is not told of must read as unset and zero, and nothing else may
// be kept from it.
func TestNeeded(t *testing.T) {
	flags := []urcli.Flag{
		&urcli.BoolFlag{Name: "yes", Aliases: []string{"y"}},
		&urcli.BoolFlag{Name: "on", Value: true},
		&urcli.StringFlag{Name: "out"},
		&urcli.StringFlag{Name: "delimiter", Value: ":"},
		&urcli.StringFlag{Name: "creds", EnvVars: []string{"SALT_CREDS"}},
		&urcli.IntFlag{Name: "indent"},
		&urcli.IntFlag{Name: "tries", Value: 3},
		&urcli.StringSliceFlag{Name: "tag"},
		&urcli.StringSliceFlag{Name: "bus", Value: urcli.NewStringSlice("master")},
		&urcli.DurationFlag{Name: "wait"}, // of a type that is not looked into
	}
	g := newGrammar(flags)
	args, err := g.normalize([]string{"-y", "word", "--tag", "a=b"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range needed(flags, g.given(args)) {
		got = append(got, f.Names()[0])
	}
	if want := []string{"yes", "on", "delimiter", "creds", "tries", "tag", "bus", "wait"}; !slices.Equal(got, want) {
		t.Errorf("needed are %q, want %q", got, want)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"accept", "list", "list-all", "timeout", "test.ping"}
	for word, want := range map[string]string{
		"timeuot": "timeout", "tiemout": "timeout", "acept": "accept", "lisst": "list", "test.pong": "test.ping",
		"list_all": "list-all", "bogus": "", "": "", "t": "", "xxxx": "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
