// Command salt-template renders a template, for a daemon.
package main

import (
	"os"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/salttemplate"
)

func main() { os.Exit(cli.Main("salt-template", salttemplate.Run)) }
