// Command salt-master is the master's daemon.
package main

import (
	"os"

	"brine/internal/cli"
	"brine/internal/cli/saltmaster"
)

func main() { os.Exit(cli.Main("salt-master", saltmaster.Run)) }
