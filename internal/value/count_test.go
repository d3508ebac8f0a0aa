package value

import "testing"

func TestCount(t *testing.T) {
	for text, want := range map[string]int{
		`1`: 1, `{"a":1}`: 2, `[1,2]`: 3, `[[],[]]`: 5, `"[,{"`: 1, `{"a\",[":"\\",",":[1]}`: 4, ``: 1, `"`: 1,
	} {
		if got := Count([]byte(text)); got != want {
			t.Errorf("Count(%s) is %d, want %d", text, got, want)
		}
	}
}
