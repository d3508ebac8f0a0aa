// Command salt runs a function on many minions.
package main

import (
	"os"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltcmd"
)

func main() { os.Exit(cli.Main("salt", saltcmd.Run)) }
