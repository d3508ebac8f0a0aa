package value

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
)

// TestSizeIsNearTheMemory that a value takes, wherever its long parts are.
func TestSizeIsNearTheMemory(t *testing.T) {
	const long = 1 << 20
	text := strings.Repeat("x", long)
	many := make([]any, long/partSize)
	for name, v := range map[string]any{
		"text": text, "list": []any{"a", []any{text}}, "map": map[string]any{"a": map[string]any{"b": text}}, "key": map[string]any{text: nil},
		"encoded": []any{Raw(text), nil}, "message": json.RawMessage(text), "value": Value{V: text}, "number": new(big.Int).Lsh(big.NewInt(1), 8*long), "many": many,
	} {
		if n := Size(v); n < long || n > long+long/8 {
			t.Errorf("%s: %d bytes, want about %d", name, n, long)
		}
	}
	for _, v := range []any{nil, true, int64(1), 1.5, "", []any{}, map[string]any{}} {
		if n := Size(v); n <= 0 || n > 64 {
			t.Errorf("Size(%#v) = %d", v, n)
		}
	}
}
