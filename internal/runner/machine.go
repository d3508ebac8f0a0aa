package runner

import (
	"context"
	"log/slog"
	"sync"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/grain"
)

// Machine is the master's own machine.
type Machine struct {
	Version  string
	CacheDir string // of the master
	Log      *slog.Logger
}

// Host is the machine for functions of minions that a runner runs on it. It has no id, no bus and
// no jobs of a minion; its grains are collected when a function wants them, until ctx ends.
func (m Machine) Host(ctx context.Context, config map[string]any) *function.Host {
	return &function.Host{
		Version: m.Version, Config: config, Paths: function.Paths{CacheDir: m.CacheDir}, Log: m.Log,
		Data: facts(sync.OnceValue(func() map[string]any {
			facts, err := grain.Collect(ctx, grain.Options{})
			if err != nil {
				m.Log.Warn("some grains of the master's machine are missing", "err", err)
			}
			return facts
		})),
	}
}

// facts implements function.Data for a machine that is not a minion: it has no pillar.
type facts func() map[string]any

// Grains implements function.Data.
func (f facts) Grains() map[string]any { return f() }

// Pillar implements function.Data.
func (facts) Pillar() map[string]any { return map[string]any{} }

// PillarErrors implements function.Data.
func (facts) PillarErrors() []string { return nil }
