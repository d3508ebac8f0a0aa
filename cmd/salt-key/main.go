// Command salt-key manages the keys of minions on their master.
package main

import (
	"os"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltkey"
)

func main() { os.Exit(cli.Main("salt-key", saltkey.Run)) }
