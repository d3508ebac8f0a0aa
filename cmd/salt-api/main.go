// Command salt-api serves HTTP for browsers and programs, in front of a master.
package main

import (
	"os"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltapi"
)

func main() { os.Exit(cli.Main("salt-api", saltapi.Run)) }
