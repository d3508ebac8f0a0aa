// Command salt-minion is the minion's daemon.
package main

import (
	"os"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltminion"
)

func main() { os.Exit(cli.Main("salt-minion", saltminion.Run)) }
