package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
)

// The return codes of status.health, which are those of Nagios plugins.
const (
	healthOK = iota
	healthWarning
	healthCritical
	healthUnknown
)

// statusModule reports the health of the master, for monitoring.
func statusModule(h *Host) *function.Module {
	return &function.Module{Name: "status", Doc: "The state of the master.", Functions: []function.Function{
		{Name: "health", Class: function.Shared, Doc: "Return one line of text that begins with OK, WARNING, CRITICAL or UNKNOWN, as Nagios plugins do; salt-run ends with 0, 1, 2 or 3 accordingly. " +
			"The state is a warning, or critical, when at least as many accepted minions as these arguments say are disconnected; without critical, it is critical when all are. A journal that cannot be written is critical, a configuration that is not in force, a member of the cluster that should run and does not, and streams without all their copies (lacking in cluster.status) are a warning, " +
			"and a master that does not answer critical.",
			Example: "salt-run status.health\nsalt-run status.health warning=5 critical=50",
			Params:  []function.Param{{Name: "warning", Kind: function.Int, Default: 1}, {Name: "critical", Kind: function.Int}}, Out: "txt",
			Run: h.health},
	}}
}

func (h *Host) health(ctx context.Context, c *function.Call) (any, error) {
	if c.Int("warning") < 1 || c.Has("critical") && c.Int("critical") < 1 {
		return nil, fmt.Errorf("warning and critical are numbers of minions, from 1")
	}
	accepted := h.IDs()
	var away []salt.MinionID
	for _, id := range accepted {
		if there, _ := h.Connected(id); !there {
			away = append(away, id)
		}
	}
	most := max(len(accepted), 1)
	if c.Has("critical") {
		most = int(c.Int("critical"))
	}
	level, text := healthOK, fmt.Sprintf("%d of %d accepted minions are connected", len(accepted)-len(away), len(accepted))
	switch {
	case len(away) >= most:
		level = healthCritical
	case len(away) >= int(c.Int("warning")):
		level = healthWarning
	}
	if len(away) > 0 {
		text += "; away: " + few(away)
	}
	if why := h.Unreloaded(); why != "" {
		level, text = max(level, healthWarning), text+"; the configuration that was read last is not in force: "+why
	}
	if wrong := h.unwhole(ctx); wrong != "" {
		level, text = max(level, healthWarning), text+"; "+wrong
	}
	if err := h.StoreErr(); err != nil {
		level, text = healthCritical, "the journal cannot be written: "+err.Error()+"; "+text
	}
	c.SetRetcode(level)
	return [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[level] + ": " + strings.Join(strings.Fields(text), " "), nil
}

// unwhole says what the cluster lacks: members that should run, and copies; "" for nothing, and for a single master.
func (h *Host) unwhole(ctx context.Context) string {
	s, err := h.ClusterStatus(ctx)
	if errors.Is(err, ErrAlone) {
		return ""
	}
	if err != nil {
		return "the state of the cluster is not known: " + err.Error()
	}
	var gone, list []string
	counting := 0
	for _, m := range s.Members {
		if m.Counts() {
			counting++
			if !m.Running {
				gone = append(gone, m.Name)
			}
		}
	}
	if len(gone) > 0 {
		list = append(list, fmt.Sprintf("%d of %d members of the cluster run; not running: %s", counting-len(gone), counting, strings.Join(gone, ", ")))
	}
	if n := len(s.Lacking); n > 0 {
		list = append(list, salt.Count(n, "stream")+" without all copies")
	}
	return strings.Join(list, "; ")
}

// few names some of many minions.
func few(ids []salt.MinionID) string {
	const most = 10
	var names []string
	for _, id := range ids[:min(len(ids), most)] {
		names = append(names, string(id))
	}
	if more := len(ids) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
