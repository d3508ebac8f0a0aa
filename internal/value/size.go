package value

import (
	"encoding/json"
	"math/big"
)

// Estimated bytes of memory, beside what a string or a number has.
const (
	partSize  = 16 // of an interface, or of the header of a string
	entrySize = 48 // of an entry of a map, with its part of the table
)

// Size estimates how many bytes of memory a value takes. What is encoded counts as long as it is.
func Size(v any) int {
	n := partSize
	switch x := v.(type) {
	case string:
		n += partSize + len(x)
	case Raw:
		n += partSize + len(x)
	case json.RawMessage:
		n += partSize + len(x)
	case Value:
		n = Size(x.V)
	case *big.Int:
		n += x.BitLen() / 8
	case []any:
		for _, m := range x {
			n += Size(m)
		}
	case map[string]any:
		for k, m := range x {
			n += entrySize + len(k) + Size(m)
		}
	}
	return n
}
