// Command salt-returner puts a return into a database, for a minion.
package main

import (
	"os"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltreturner"
)

func main() { os.Exit(cli.Main("salt-returner", saltreturner.Run)) }
