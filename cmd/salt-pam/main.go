// Command salt-pam asks the modules of PAM about a user, for the master.
package main

import (
	"os"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltpam"
)

func main() { os.Exit(cli.Main("salt-pam", saltpam.Run)) }
