// Package salttemplate is the program salt-template: it renders one template for a daemon and
// ends. People do not call it; it is a program of its own so that a template that takes too
// much ends this process and nothing else.
package salttemplate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/template"
	"github.com/brinebus/brine/internal/template/jinja"
	"github.com/brinebus/brine/internal/value"
)

// What one template may take. The daemon that waits ends the process after a time of its own.
const (
	maxMemory = 512 << 20
	maxStack  = 64 << 20
	lookEvery = 5 * time.Millisecond
)

// Run runs salt-template.
func Run(ctx context.Context, env *cli.Env) int {
	return env.Run(ctx, cli.Spec{
		Synopsis: []string{"<ORDER"},
		Summary:  "Render a template, for salt-master, salt-minion and salt-call: text and values as JSON on standard input.",
		Examples: []string{`echo '{"text": "{{ grains.os }}", "values": {"grains": {"os": "Debian"}}}' | salt-template`},
		Run:      run,
	})
}

func run(_ context.Context, env *cli.Env, _ *urcli.Context) error {
	debug.SetMaxStack(maxStack)
	go endAbove(maxMemory)
	b, err := io.ReadAll(io.LimitReader(env.Stdin, template.MaxText+template.MaxValues))
	if err != nil {
		return err
	}
	var o template.Order
	if err := json.Unmarshal(b, &o); err != nil {
		return cli.Fail(cli.Usage, fmt.Errorf("read the order: %w", err))
	}
	values, ok := o.Values.V.(map[string]any)
	if !ok {
		values = map[string]any{}
	}
	out, err := jinja.Render(o.Text, values)
	if m, ok := errors.AsType[*template.Mistake](err); ok {
		return report(env, m)
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(env.Stdout, out)
	return err
}

// report says what is wrong with the template, for a program.
func report(env *cli.Env, m *template.Mistake) error {
	b, err := value.Encode(map[string]any{"line": m.Line, "text": m.Text})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Stderr, "%s\n", b)
	return errors.Join(err, cli.Exit(cli.Failed))
}

// endAbove ends the process when it has taken that much memory: one expression may ask for all
// there is, so nothing that looks in between can.
func endAbove(limit uint64) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for {
		if metrics.Read(sample); sample[0].Value.Uint64() > limit {
			_ = posix.Kill(os.Getpid(), syscall.SIGKILL) // it has nothing to tidy up
		}
		time.Sleep(lookEvery)
	}
}
