//go:build !race

// With the race detector the compiler makes a copy of what a slice grows by.

package value

import (
	"bytes"
	"testing"
)

// TestLongIsEncodedOnce: what is raw and long is copied once when what it stands in is
// encoded, wherever it stands there.
func TestLongIsEncodedOnce(t *testing.T) {
	long := Raw(`"` + string(bytes.Repeat([]byte("x"), 1<<20)) + `"`)
	v := map[string]any{"a": "x", "data": map[string]any{"return": Value{long}}, "z": []any{1, "y"}}
	for name, f := range map[string]func() ([]byte, error){
		"Encode":        func() ([]byte, error) { return Encode(v) },
		"AppendMembers": func() ([]byte, error) { return AppendMembers([]byte(`{"b":1`), Member{"a", v}, Member{"c", 1}) },
	} {
		allocated := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				if text, err := f(); err != nil || len(text) < len(long) {
					b.Fatal(len(text), err)
				}
			}
		}).AllocedBytesPerOp()
		if allocated > int64(len(long))*3/2 {
			t.Errorf("%s of %d bytes takes %d", name, len(long), allocated)
		}
	}
}
