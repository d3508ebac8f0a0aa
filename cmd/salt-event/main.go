// Command salt-event is the event bus for shell scripts.
package main

import (
	"os"

	"brine/internal/cli"
	"brine/internal/cli/saltevent"
)

func main() { os.Exit(cli.Main("salt-event", saltevent.Run)) }
