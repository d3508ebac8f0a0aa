package journal

import (
	"testing"
	"time"
)

// FuzzNames reads a file of names as a kill or a damaged disk may have left it.
func FuzzNames(f *testing.F) {
	f.Add(appendChunk(nil, 7, time.UnixMilli(1), []named{{sender: "minion:web1"}, {sender: "minion:web1"}, {sender: "user:0"}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for rest := b; len(rest) > 0; {
			before := len(rest)
			var err error
			if _, rest, err = readChunk(rest, func(time.Time, named) {}); err != nil {
				return
			}
			if len(rest) >= before {
				t.Fatal("a chunk without length")
			}
		}
	})
}
