//go:build !race

package accord

import (
	"flag"
	"testing"
)

// histories is how many random histories are tried: 500 take some two minutes.
var histories = flag.Uint64("histories", 60, "how many random histories are tried of each kind")

// The same with more seeds, without the race detector, which makes them take several times as long.

func TestManyRandomHistories(t *testing.T) { tryHistories(t, 10, *histories) }

func TestManySharedRandomHistories(t *testing.T) { trySharedHistories(t, 20, *histories) }
