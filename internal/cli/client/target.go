package client

import (
	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/target"
)

// targets are the options for the type of TARGET; without one it is a glob.
var targets = []struct {
	name, letter, usage string
	kind                target.Kind
}{
	{"list", "L", "TARGET is a list of ids with commas", target.List},
	{"pcre", "E", "TARGET is a regular expression", target.PCRE},
	{"grain", "G", "TARGET is a grain and a glob, as in os:Debian", target.Grain},
	{"grain-pcre", "P", "TARGET is a grain and a regular expression", target.GrainPCRE},
	{"nodegroup", "N", "TARGET is a nodegroup of the master", target.Nodegroup},
	{"compound", "C", "TARGET is a compound expression", target.Compound},
	{"pillar", "I", "TARGET is a pillar key and a glob", target.Pillar},
	{"pillar-pcre", "J", "TARGET is a pillar key and a regular expression", target.PillarPCRE},
	{"ipcidr", "S", "TARGET is an address or a network", target.IPCIDR},
}

// TargetFlags are the options for the type of TARGET, without the letter taken, which another
// option uses.
func TargetFlags(taken string) []urcli.Flag {
	const group = "Targeting"
	var list []urcli.Flag
	for _, t := range targets {
		f := &urcli.BoolFlag{Category: group, Name: t.name, Usage: t.usage}
		if t.letter != taken {
			f.Aliases = []string{t.letter}
		}
		list = append(list, f)
	}
	return append(list, &urcli.StringFlag{Category: group, Name: "delimiter", Value: ":", Usage: "`TEXT` between the levels of a grain or pillar target"})
}

// TargetKind returns the type selected by the options.
func TargetKind(opts *urcli.Context) (target.Kind, error) {
	kind := target.Glob
	for _, t := range targets {
		if !opts.Bool(t.name) {
			continue
		}
		if kind != target.Glob {
			return "", cli.Usagef("the options for the kind of target exclude each other: %s and %s", kind, t.kind)
		}
		kind = t.kind
	}
	if opts.String("delimiter") == "" {
		return "", cli.Usagef("--delimiter is empty")
	}
	return kind, nil
}
