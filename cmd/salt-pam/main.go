// Command salt-pam asks the modules of PAM about a user, for the master.
package main

import (
	"os"

	"brine/internal/cli"
	"brine/internal/cli/saltpam"
)

func main() { os.Exit(cli.Main("salt-pam", saltpam.Run)) }
