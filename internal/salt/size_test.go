package salt

import "testing"

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1048576": 1 << 20, "1_000_000": 1e6, "5B": 5, "1KB": 1000, "1K": 1024, "1KiB": 1024, "512mib": 512 << 20,
		"1.5 GB": 1.5e9, "2T": 2 << 40, "1TB": 1e12,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "KB", "1XB", "0x10", "1e3", "inf", "NaN", "2000000TiB", "1 2", "1.2.3"} {
		if got, err := ParseSize(text); err == nil || got != 0 || Hint(err) == "" {
			t.Errorf("ParseSize(%q) is %d, %v; want an error with a hint", text, got, err)
		}
	}
}
