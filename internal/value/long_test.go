package value

import (
	"bytes"
	"strings"
	"testing"
)

// What is long is gone over, and copied, in stretches: their ends change nothing.
func TestLongTexts(t *testing.T) {
	for _, size := range []int{0, 1, stretch - 9, stretch - 8, stretch - 1, stretch, stretch + 1, stretch + 7, 3*stretch - 1, 3 * stretch} {
		for _, middle := range []string{"", "x", `\n`, `\"`, `\u00e9`, "ä"} {
			for _, at := range []int{0, min(size, stretch-3), size} {
				text := []byte(`"` + strings.Repeat("x", at) + middle + strings.Repeat("y", size-at) + `"`)
				raw, err := NewRaw(text)
				if err != nil {
					t.Fatalf("%d bytes, %q at %d: %v", size, middle, at, err)
				}
				b, err := Append([]byte("before "), map[string]any{"k": raw})
				if want := `before {"k":` + string(text) + `}`; err != nil || string(b) != want {
					t.Errorf("%d bytes, %q at %d: written as %d bytes, %v", size, middle, at, len(b), err)
				}
			}
		}
		for name, text := range map[string]string{
			"no end":         `"` + strings.Repeat("x", size),
			"a control byte": `"` + strings.Repeat("x", size) + "\n" + `"`,
			"more behind it": `"` + strings.Repeat("x", size) + `"x`,
			"a bad escape":   `"` + strings.Repeat("x", size) + `\x` + `"`,
		} {
			if Valid([]byte(text)) {
				t.Errorf("%s behind %d bytes is valid", name, size)
			}
		}
	}
}

// Room that was made for a long value is used, and nothing of it is copied twice.
func TestLongValuesAreWrittenInPlace(t *testing.T) {
	raw := Raw(`"` + strings.Repeat("x", 10*stretch) + `"`)
	room := make([]byte, 1, len(raw)+100)
	b, err := Append(room, map[string]any{"k": raw})
	if err != nil || &b[0] != &room[0] || !bytes.Contains(b, raw) {
		t.Errorf("%d bytes in another place, %v", len(b), err)
	}
}
