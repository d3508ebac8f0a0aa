// Command salt-minion is the minion's daemon.
package main

import (
	"os"

	"brine/internal/cli"
	"brine/internal/cli/saltminion"
)

func main() { os.Exit(cli.Main("salt-minion", saltminion.Run)) }
