// Command salt-event is the event bus for shell scripts.
package main

import (
	"os"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/saltevent"
)

func main() { os.Exit(cli.Main("salt-event", saltevent.Run)) }
