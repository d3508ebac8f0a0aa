// Command salt-call runs a function on this minion.
package main

import (
	"os"

	"brine/internal/cli"
	"brine/internal/cli/saltcall"
)

func main() { os.Exit(cli.Main("salt-call", saltcall.Run)) }
