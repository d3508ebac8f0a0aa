// Package saltreturner is the program salt-returner: it puts one return into a
// database for a minion and ends. People do not call it; it is a program of its own
// so that a minion does not carry the drivers of databases that it does not use.
package saltreturner

import (
	"context"
	"encoding/json"
	"fmt"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/returner/database"
	"github.com/brinebus/brine/internal/returner/database/driver"
)

// Run runs salt-returner.
func Run(ctx context.Context, env *cli.Env) int {
	return env.Run(ctx, cli.Spec{
		Synopsis: []string{"<ORDER"},
		Summary:  "Put a return into a database, for salt-minion and salt-call: database and return as JSON on standard input.",
		Examples: []string{`echo '{"database": {"kind": "sqlite3", "file": "/tmp/returns.db"}, "row": {"fun": "test.ping"}}' | salt-returner`},
		Run:      run,
	})
}

// run reads what is to be done from standard input, where a password is not seen.
// How much that is decides the minion: a return may be large.
func run(ctx context.Context, env *cli.Env, _ *urcli.Context) error {
	var o database.Order
	if err := json.NewDecoder(env.Stdin).Decode(&o); err != nil {
		return cli.Fail(cli.Usage, fmt.Errorf("read the order: %w", err))
	}
	return driver.Insert(ctx, o)
}
