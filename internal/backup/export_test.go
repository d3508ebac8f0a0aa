package backup

import (
	"testing"
	"time"
)

// Plan returns the names that the streams of a backup get, and those that are left out.
func Plan(m *Manifest, to Target) (names, left []string, err error) {
	moves, left, err := m.plan(to)
	for _, one := range moves {
		names = append(names, one.to.Stream())
	}
	return names, left, err
}

// SetLeaderTime shortens the wait for the leader of a stream.
func SetLeaderTime(t testing.TB, d time.Duration) {
	was, ask, pause := leaderTime, leaderAsk, leaderPause
	leaderTime, leaderAsk, leaderPause = d, d/4, d/20
	t.Cleanup(func() { leaderTime, leaderAsk, leaderPause = was, ask, pause })
}
