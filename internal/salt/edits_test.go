package salt

import "testing"

func TestEdits(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "ab", 2}, {"ping", "ping", 0}, {"pnig", "ping", 1}, {"pin", "ping", 1}, {"pingg", "ping", 1},
		{"pong", "ping", 1}, {"ca", "abc", 3}, {"test.pign", "test.ping", 1}, {"kitten", "sitting", 3},
	} {
		if got, back := Edits(tt.a, tt.b), Edits(tt.b, tt.a); got != tt.want || back != tt.want {
			t.Errorf("Edits(%q, %q) = %d and %d, want %d", tt.a, tt.b, got, back, tt.want)
		}
	}
}
