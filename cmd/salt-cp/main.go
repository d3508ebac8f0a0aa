// Command salt-cp copies files of this machine to minions.
package main

import (
	"os"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltcp"
)

func main() { os.Exit(cli.Main("salt-cp", saltcp.Run)) }
