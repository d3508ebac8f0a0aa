package fleet

import (
	"runtime"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Grains that are made to take much memory do not, within the limits.
func TestGrainsAreKeptSmall(t *testing.T) {
	text := []byte(`{"x":[` + strings.TrimSuffix(strings.Repeat(`{"":0},`, 4900), ",") + `],"y":"` + strings.Repeat("y", 150<<10) + `"}`)
	if err := checkGrains(text); err != nil {
		t.Fatal(err)
	}
	g := &grains{byID: map[salt.MinionID]fact{}}
	before := heapInUse()
	const minions = 100
	for i := range minions {
		v, err := value.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		id := salt.MinionID("web" + string(rune('a'+i)))
		g.byID[id] = newFact(v.(map[string]any), text)
		if len(g.of(id)) != 2 {
			t.Fatal("they are not read back")
		}
	}
	each := (heapInUse() - before) / minions
	if limit := int64(2 * maxGrains); each > limit {
		t.Errorf("the grains of a minion take %d bytes, want %d at most", each, limit)
	}
	runtime.KeepAlive(g)
	t.Logf("%d bytes of text take %d", len(text), each)
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
