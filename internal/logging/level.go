package logging

import (
	"fmt"
	"log/slog"
	"math"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// Levels besides the four of slog, at their positions in Salt's scale.
const (
	LevelAll      = slog.Level(math.MinInt)
	LevelGarbage  = slog.Level(-12)
	LevelTrace    = slog.Level(-8)
	LevelProfile  = slog.Level(-2) // between debug and info
	LevelCritical = slog.Level(12)
	LevelQuiet    = slog.Level(math.MaxInt) // above every record
)

// levels is Salt's scale, the most verbose first. A record gets the name of the last level that it
// reaches.
var levels = []struct {
	name  string
	level slog.Level
}{
	{"all", LevelAll},
	{"garbage", LevelGarbage},
	{"trace", LevelTrace},
	{"debug", slog.LevelDebug},
	{"profile", LevelProfile},
	{"info", slog.LevelInfo},
	{"warning", slog.LevelWarn},
	{"error", slog.LevelError},
	{"critical", LevelCritical},
	{"quiet", LevelQuiet},
}

// LevelNames returns the names that ParseLevel knows, the most verbose first.
func LevelNames() []string {
	names := make([]string, len(levels))
	for i, l := range levels {
		names[i] = l.name
	}
	return names
}

// ParseLevel returns the level with the name s in Salt's scale; case does not matter. The error has
// the list of names as its hint.
func ParseLevel(s string) (slog.Level, error) {
	for _, l := range levels {
		if strings.EqualFold(s, l.name) {
			return l.level, nil
		}
	}
	err := fmt.Errorf("unknown log level %q", s)
	return 0, salt.WithHint(err, "the levels are "+strings.Join(LevelNames(), ", "))
}

// levelName returns the name printed for a record of level l, in capitals.
func levelName(l slog.Level) string {
	name := "garbage" // "all" and "quiet" are only thresholds, not levels of records
	for _, known := range levels[1 : len(levels)-1] {
		if l >= known.level {
			name = known.name
		}
	}
	return strings.ToUpper(name)
}
