package journal

import (
	"errors"
	"fmt"
	"testing"
)

// TestMarksTakeNoMemory: for a reader that does not ask for marks, they do not count for the limits, and remove what they have
// replaced. One that does has them.
func TestMarksTakeNoMemory(t *testing.T) {
	k := kept{byName: map[string]tableMessage{}}
	for n := range uint64(2 * maxKept) {
		name := fmt.Sprint("token", n)
		for _, m := range []tableMessage{{name: name, value: []byte("text"), revision: 2*n + 1}, {name: name, deleted: true, revision: 2*n + 2}} {
			if err := k.add(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(k.byName) > 0 || k.bytes != 0 {
		t.Errorf("%d entries of %d bytes are kept", len(k.byName), k.bytes)
	}
	k.marks = true
	var err error
	for n := 0; err == nil && n <= maxKept; n++ {
		err = k.add(tableMessage{name: fmt.Sprint("token", n), deleted: true})
	}
	if !errors.Is(err, errLarge) {
		t.Errorf("too many marks are kept: %v", err)
	}
}
