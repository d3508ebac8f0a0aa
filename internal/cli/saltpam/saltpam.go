// Package saltpam is the program salt-pam: it asks PAM one question for the
// master and ends. People do not call it; it is a program of its own so that the
// modules of PAM run in no daemon.
package saltpam

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/pam"
	"github.com/brinebus/brine/internal/pam/libpam"
)

// Run runs salt-pam.
func Run(ctx context.Context, env *cli.Env) int {
	return env.Run(ctx, cli.Spec{
		Synopsis: []string{"<QUESTION"},
		Summary:  "Ask PAM about a user, for salt-master: a question as JSON on standard input, the answer as JSON on standard output.",
		Examples: []string{`echo '{"service": "login", "user": "fred", "account_only": true}' | salt-pam`},
		Run:      run,
	})
}

// maxQuestion bounds the question.
const maxQuestion = 64 << 10

func run(ctx context.Context, env *cli.Env, _ *urcli.Context) error {
	var q pam.Question
	if err := json.NewDecoder(io.LimitReader(env.Stdin, maxQuestion)).Decode(&q); err != nil {
		return cli.Fail(cli.Usage, fmt.Errorf("read the question: %w", err))
	}
	if err := adopt(); err != nil {
		return fmt.Errorf("adopt what modules start: %w", err)
	}
	answer, err := ask(ctx, q)
	if err != nil {
		return err
	}
	return json.NewEncoder(env.Stdout).Encode(answer)
}

// ask asks the library. When ctx ends first, what the modules have started ends
// with it; they themselves end with this process.
func ask(ctx context.Context, q pam.Question) (pam.Answer, error) {
	type result struct {
		pam.Answer
		err error
	}
	done := make(chan result, 1)
	go func() {
		a, err := libpam.Ask(q)
		done <- result{a, cli.Fail(cli.Unavailable, err)}
	}()
	select {
	case r := <-done:
		return r.Answer, r.err
	case <-ctx.Done():
		killChildren()
		return pam.Answer{}, context.Cause(ctx)
	}
}
