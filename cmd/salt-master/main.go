// Command salt-master is the master's daemon.
package main

import (
	"os"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltmaster"
)

func main() { os.Exit(cli.Main("salt-master", saltmaster.Run)) }
