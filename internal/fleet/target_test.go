package fleet

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/target"
)

// TestDearTargetsAreReadInTurn: what takes long only to be read waits while others use what
// there is for that. What people write is read at once.
func TestDearTargetsAreReadInTurn(t *testing.T) {
	f := &Fleet{Options: Options{Nodegroups: func() map[string]any { return nil }}, evaluations: NewEvaluations()}
	for n := range max(1, runtime.GOMAXPROCS(0)/2) {
		if _, err := f.evaluations.Acquire(t.Context(), fmt.Sprintf("other %d", n)); err != nil {
			t.Fatal(err)
		}
	}
	ended := errors.New("no turn came")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ended)
	pattern := strings.Repeat("a?", longPattern/2) + "b"
	for name, c := range map[string]struct {
		kind   target.Kind
		target string
		waits  bool
	}{
		"a pattern":                   {target.PCRE, `web\d+\.example\.com`, false},
		"a long pattern":              {target.PCRE, pattern, true},
		"of grains":                   {target.GrainPCRE, "os:" + pattern, true},
		"of pillar":                   {target.PillarPCRE, "os:" + pattern, true},
		"in a compound":               {target.Compound, "web1 or E@" + pattern, true},
		"of grains in a compound":     {target.Compound, "web1 or P@os:" + pattern, true},
		"of pillar in a compound":     {target.Compound, "web1 or J@os:" + pattern, true},
		"a compound":                  {target.Compound, "web1 or E@db.*", false},
		"a longer compound":           {target.Compound, strings.Repeat("web1 or ", 100) + "web1", false},
		"a compound of many words":    {target.Compound, strings.Repeat("web1 or ", 1000) + "web1", true},
		"a list of thousands of ids":  {target.List, strings.Repeat("web1,", 5000) + "web1", false},
		"a glob of some hundred byte": {target.Glob, strings.Repeat("a*", 200), false},
	} {
		_, err := f.ParseTarget(ctx, "user:nobody", protocol.Publish{Target: c.target, TargetType: string(c.kind)})
		if errors.Is(err, ended) != c.waits || !c.waits && err != nil {
			t.Errorf("%s: %v, want that it waits: %v", name, err, c.waits)
		}
	}
}
