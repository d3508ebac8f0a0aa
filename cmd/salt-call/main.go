// Command salt-call runs a function on this minion.
package main

import (
	"os"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltcall"
)

func main() { os.Exit(cli.Main("salt-call", saltcall.Run)) }
