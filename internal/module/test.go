package module

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	mathrand "math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// testModule returns every kind of value for tests.
var testModule = &function.Module{
	Name: "test",
	Doc:  "Functions that test whether a minion answers, and how.",
	Functions: []function.Function{
		{
			Name:    "arg",
			Doc:     "Return the arguments as they arrived.",
			Example: `salt '*' test.arg 1 "two" 3.1 txt="hello" wow='{a: 1, b: "hello"}'`,
			Varargs: true, Kwargs: true,
			Run: func(_ context.Context, c *function.Call) (any, error) { return testArg(c), nil },
		},
		{
			Name:    "arg_clean",
			Doc:     "Return the arguments as they arrived. Job metadata is never among them here, so this is the same as test.arg.",
			Example: `salt '*' test.arg_clean 1 "two" 3.1`,
			Varargs: true, Kwargs: true,
			Run: func(_ context.Context, c *function.Call) (any, error) { return testArg(c), nil },
		},
		{
			Name:    "arg_repr",
			Doc:     "Return the arguments as Python would write them.",
			Example: `salt '*' test.arg_repr 1 "two" 3.1 txt="hello"`,
			Varargs: true, Kwargs: true,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return map[string]any{"args": reprTuple(c.Varargs()), "kwargs": repr(c.Extra())}, nil
			},
		},
		{
			Name:    "arg_type",
			Doc:     "Return the types of the arguments, by their Python names.",
			Example: `salt '*' test.arg_type 1 'int'`,
			Varargs: true, Kwargs: true,
			Run: testArgType,
		},
		{
			Name:    "assertion",
			Doc:     "Fail unless the argument counts as true.",
			Example: `salt '*' test.assertion False`,
			Params:  []function.Param{{Name: "assertion", Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				if !truthy(c.Any("assertion")) {
					return nil, &function.ExceptionError{Text: "AssertionError"}
				}
				return nil, nil
			},
		},
		{
			Name:    "collatz",
			Doc:     "Return the Collatz sequence from the starting number, without its final 1, and the seconds it took.",
			Example: `salt '*' test.collatz 3`,
			Params:  []function.Param{{Name: "start", Kind: function.Int, Required: true}},
			Run:     testCollatz,
		},
		{
			Name:    "conf_test",
			Doc:     "Return the value of test.foo in the minion configuration.",
			Example: `salt '*' test.conf_test`,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return configOption(c, "test.foo"), nil },
		},
		{
			Name:    "cross_test",
			Doc:     "Run another function and return its answer.",
			Example: `salt '*' test.cross_test test.echo '[hello]'`,
			Params:  []function.Param{{Name: "func", Kind: function.String, Required: true}, {Name: "args", Kind: function.List}},
			Calls:   &function.Calls{Read: function.Runs(crossTested), Run: crossTest},
		},
		{
			Name:    "echo",
			Doc:     "Return the argument.",
			Example: `salt '*' test.echo 'foo bar baz quo qux'`,
			Params:  []function.Param{{Name: "text", Required: true}},
			Run:     func(_ context.Context, c *function.Call) (any, error) { return c.Any("text"), nil },
		},
		{
			Name:    "exception",
			Doc:     "Fail as a defective function does.",
			Example: `salt '*' test.exception 'Oh noes!'`,
			Params:  []function.Param{{Name: "message", Kind: function.String, Default: "Test Exception"}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				return nil, &function.ExceptionError{Text: c.String("message")}
			},
		},
		{
			Name:    "false",
			Doc:     "Return False. That is an answer, not a failure.",
			Example: `salt '*' test.false`,
			Run:     func(context.Context, *function.Call) (any, error) { return false, nil },
		},
		{
			Name:    "fib",
			Doc:     "Return the Fibonacci number of the given index and the seconds it took.",
			Example: `salt '*' test.fib 3`,
			Params:  []function.Param{{Name: "num", Kind: function.Int, Required: true}},
			Run:     testFib,
		},
		{
			Name:    "get_opts",
			Doc:     "Return the configuration of the minion.",
			Example: `salt '*' test.get_opts`,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return c.Host.Config, nil },
		},
		{
			Name:    "kwarg",
			Doc:     "Return the arguments given by name.",
			Example: `salt '*' test.kwarg num=1 txt="two" env='{a: 1, b: "hello"}'`,
			Kwargs:  true,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return c.Extra(), nil },
		},
		{
			Name:    "outputter",
			Doc:     "Return the argument, to be shown by the txt outputter.",
			Example: `salt '*' test.outputter foobar`,
			Params:  []function.Param{{Name: "data", Required: true}},
			Out:     "txt",
			Run:     func(_ context.Context, c *function.Call) (any, error) { return c.Any("data"), nil },
		},
		{
			Name:    "ping",
			Doc:     "Return True: the minion is up and answers.",
			Example: `salt '*' test.ping`,
			Run:     func(context.Context, *function.Call) (any, error) { return true, nil },
		},
		{
			Name:    "providers",
			Doc:     "Return what programs of the system the modules use: the package manager and the service manager.",
			Example: `salt '*' test.providers`,
			Run: func(_ context.Context, c *function.Call) (any, error) {
				all := map[string]any{}
				if m, err := findPackager(); err == nil {
					all["pkg"] = m.name
				}
				if which("systemctl") != nil {
					all["service"] = "systemd"
				}
				return all, nil
			},
		},
		{
			Name:    "raise_exception",
			Doc:     "Fail with the named exception. CommandExecutionError and SaltInvocationError are reported as such failures, any other as a bug.",
			Example: `salt '*' test.raise_exception TypeError "An integer is required"`,
			Params:  []function.Param{{Name: "name", Kind: function.String, Required: true}},
			Varargs: true, Kwargs: true,
			Run: testRaise,
		},
		{
			Name:    "rand_sleep",
			Doc:     "Sleep for a random number of seconds, at most max.",
			Example: `salt '*' test.rand_sleep 60`,
			Params:  []function.Param{{Name: "max", Kind: function.Int, Default: 60}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return true, pause(ctx, time.Duration(mathrand.IntN(max(c.Int("max"), 0)+1))*time.Second)
			},
		},
		{
			Name:    "rand_str",
			Doc:     "Return a random string; the older name of test.random_hash.",
			Example: `salt '*' test.rand_str`,
			Params:  []function.Param{{Name: "size", Kind: function.Int, Default: math.MaxInt32}, {Name: "hash_type", Kind: function.String, Default: "sha256"}},
			Run:     testRandomHash,
		},
		{
			Name:    "random_hash",
			Doc:     "Return the hex digest of a random number below size.",
			Example: "salt '*' test.random_hash\nsalt '*' test.random_hash hash_type=sha512",
			Params:  []function.Param{{Name: "size", Kind: function.Int, Default: math.MaxInt32}, {Name: "hash_type", Kind: function.String, Default: "sha256"}},
			Run:     testRandomHash,
		},
		{
			Name:    "retcode",
			Doc:     "Return True with the given return code.",
			Example: `salt '*' test.retcode 42`,
			Params:  []function.Param{{Name: "code", Kind: function.Int, Default: 42}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				c.SetRetcode(c.Int("code"))
				return true, nil
			},
		},
		{
			Name:    "sleep",
			Doc:     "Sleep for the given number of seconds, then return True.",
			Example: `salt '*' test.sleep 20`,
			Params:  []function.Param{{Name: "length", Kind: function.Float, Required: true}},
			Run: func(ctx context.Context, c *function.Call) (any, error) {
				return true, pause(ctx, seconds(c.Float("length")))
			},
		},
		{
			Name:    "stack",
			Doc:     "Return the stack of the program that answers this call.",
			Example: `salt '*' test.stack`,
			Run:     func(context.Context, *function.Call) (any, error) { return string(debug.Stack()), nil },
		},
		{
			Name:    "true",
			Doc:     "Return True.",
			Example: `salt '*' test.true`,
			Run:     func(context.Context, *function.Call) (any, error) { return true, nil },
		},
		{
			Name:    "try",
			Doc:     "Run another function and return its answer. If it fails, return False, or with return_try_exception the text of the failure.",
			Example: `salt '*' test.try file.read return_try_exception=True path=/nonexistent`,
			Params:  []function.Param{{Name: "module", Kind: function.String, Required: true}, {Name: "return_try_exception", Kind: function.Bool, Default: false}},
			Varargs: true, Kwargs: true,
			Calls: &function.Calls{Read: function.Runs(tried), Run: try},
		},
		{
			Name:    "version",
			Doc:     "Return the version of the minion.",
			Example: `salt '*' test.version`,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return c.Host.Version, nil },
		},
		{
			Name:    "versions_information",
			Doc:     "Return the versions of the minion, of the libraries within it and of the system, as dictionaries.",
			Example: `salt '*' test.versions_information`,
			Run:     func(_ context.Context, c *function.Call) (any, error) { return versions(c), nil },
		},
		{
			Name:    "versions_report",
			Doc:     "Return the versions of the minion, of the libraries within it and of the system, as text.",
			Example: `salt '*' test.versions_report`,
			Run:     testVersionsReport,
		},
	},
}

func testArg(c *function.Call) any {
	args := c.Varargs()
	if args == nil {
		args = []any{}
	}
	return map[string]any{"args": args, "kwargs": c.Extra()}
}

func testArgType(_ context.Context, c *function.Call) (any, error) {
	class := func(v any) any { return "<class '" + typeName(v) + "'>" }
	args, kwargs := []any{}, map[string]any{}
	for _, v := range c.Varargs() {
		args = append(args, class(v))
	}
	for k, v := range c.Extra() {
		kwargs[k] = class(v)
	}
	return map[string]any{"args": args, "kwargs": kwargs}, nil
}

func testCollatz(ctx context.Context, c *function.Call) (any, error) {
	n, begin, steps := c.Int("start"), time.Now(), []any{}
	if n < 1 {
		return nil, function.Invalid("the sequence starts at 1 or above, not at %d", n)
	}
	for n != 1 && ctx.Err() == nil {
		steps = append(steps, int64(n))
		switch {
		case n%2 == 0:
			n /= 2
		case n > (math.MaxInt-1)/3:
			return nil, fmt.Errorf("the sequence exceeds the range of integers after %s", salt.Count(len(steps), "step"))
		default:
			n = 3*n + 1
		}
	}
	return []any{steps, time.Since(begin).Seconds()}, ctx.Err()
}

// maxFib limits test.fib to what is computed within about a second.
const maxFib = 200_000

func testFib(_ context.Context, c *function.Call) (any, error) {
	n, begin := c.Int("num"), time.Now()
	if n < 0 || n > maxFib {
		return nil, function.Invalid("the index must be from 0 to %d, not %d", maxFib, n)
	}
	a, b := big.NewInt(0), big.NewInt(1)
	for range n {
		a.Add(a, b)
		a, b = b, a
	}
	return []any{a, time.Since(begin).Seconds()}, nil
}

func testRaise(_ context.Context, c *function.Call) (any, error) {
	name := c.String("name")
	words := make([]string, len(c.Varargs()))
	for i, v := range c.Varargs() {
		words[i], _ = function.ToString(v) // lists and dictionaries do not fit into a message
	}
	text := strings.Join(words, " ")
	switch name[strings.LastIndex(name, ".")+1:] {
	case "CommandExecutionError":
		return nil, errors.New(text)
	case "SaltInvocationError":
		return nil, function.Invalid("%s", text)
	}
	if text != "" {
		name += ": " + text
	}
	return nil, &function.ExceptionError{Text: name}
}

func testRandomHash(_ context.Context, c *function.Call) (any, error) {
	size := c.Int("size")
	if size < 1 {
		return nil, function.Invalid("size must be positive, not %d", size)
	}
	n, err := rand.Int(rand.Reader, big.NewInt(int64(size)))
	if err != nil {
		return nil, err
	}
	h, err := newHash(c.String("hash_type"))
	if err != nil {
		return nil, err
	}
	h.Write([]byte(n.String()))
	return hex.EncodeToString(h.Sum(nil)), nil
}

// versions returns what test.versions_information shows.
func versions(c *function.Call) map[string]any {
	libraries := map[string]any{"Go": strings.TrimPrefix(runtime.Version(), "go")}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			libraries[m.Path] = m.Version
		}
	}
	grains := c.Host.Facts()
	grain := func(name, missing string) string {
		if s, err := function.ToString(grains[name]); err == nil {
			return s
		}
		return missing
	}
	return map[string]any{
		"Brine Version":       map[string]any{"Brine": c.Host.Version},
		"Dependency Versions": libraries,
		"System Versions": map[string]any{
			"dist":    strings.TrimSpace(grain("osfullname", "") + " " + grain("osrelease", "") + " " + grain("oscodename", "")),
			"machine": grain("cpuarch", runtime.GOARCH),
			"release": grain("kernelrelease", ""),
			"system":  grain("kernel", runtime.GOOS),
		},
	}
}

func testVersionsReport(_ context.Context, c *function.Call) (any, error) {
	var b strings.Builder
	all := versions(c)
	for _, section := range []string{"Brine Version", "Dependency Versions", "System Versions"} {
		items := all[section].(map[string]any)
		names, width := slices.Sorted(maps.Keys(items)), 0
		for _, name := range names {
			width = max(width, len(name))
		}
		fmt.Fprintf(&b, "%s:\n", section)
		for _, name := range names {
			fmt.Fprintf(&b, "%*s: %v\n", width+4, name, items[name])
		}
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n"), nil
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// seconds converts to a duration; a value that does not fit becomes the longest one.
func seconds(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s * float64(time.Second))
}

func crossTested(a *function.Arguments) salt.Command {
	return salt.Command{Function: salt.Function(a.String("func")), Args: a.List("args")}
}

func crossTest(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	res := r.Call(ctx, crossTested(c.Bound()))
	c.SetRetcode(res.Retcode)
	return res.Return, res.Err
}

func tried(a *function.Arguments) salt.Command {
	return salt.Command{Function: salt.Function(a.String("module")), Args: a.Varargs(), Kwargs: a.Extra()}
}

func try(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	res := r.Call(ctx, tried(c.Bound()))
	if res.Err != nil && !c.Bool("return_try_exception") {
		return false, nil
	}
	return res.Return, nil
}
