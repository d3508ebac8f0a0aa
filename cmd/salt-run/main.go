// Command salt-run runs a runner on the master.
package main

import (
	"os"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltrun"
)

func main() { os.Exit(cli.Main("salt-run", saltrun.Run)) }
