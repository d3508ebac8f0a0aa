package runnerjob

import (
	"maps"
	"slices"

	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/runner"
)

// Words returns all completions of one kind for a command line of this master. The caller
// decides who may see them.
func (s *Server) Words(kind protocol.WordKind) []string {
	var list []string
	switch kind {
	case protocol.MinionWords:
		for _, id := range s.Host.IDs() {
			list = append(list, string(id))
		}
	case protocol.GroupWords:
		return slices.Collect(maps.Keys(s.Authz.Rules().Nodegroups()))
	case protocol.FunctionWords:
		return module.Builtin().Functions("*")
	case protocol.RunnerWords:
		return runner.Table(&s.Host).Functions("*")
	case protocol.WheelWords:
		return runner.Wheel(&s.Host).Functions("*")
	}
	return list
}
