// Command salt runs a function on many minions.
package main

import (
	"os"

	"brine/internal/cli"
	"brine/internal/cli/saltcmd"
)

func main() { os.Exit(cli.Main("salt", saltcmd.Run)) }
