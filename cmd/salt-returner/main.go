// Command salt-returner puts a return into a database, for a minion.
package main

import (
	"os"

	"brine/internal/cli"
	"brine/internal/cli/saltreturner"
)

func main() { os.Exit(cli.Main("salt-returner", saltreturner.Run)) }
