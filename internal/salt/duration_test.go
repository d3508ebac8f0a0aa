package salt

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10": 10 * time.Second, "0.5": 500 * time.Millisecond, "10s": 10 * time.Second, "2d": 2 * Day, "1h30m": 90 * time.Minute,
		"1.5d": 36 * time.Hour, "250ms": 250 * time.Millisecond, "1w": 7 * Day, "0": 0, "-1": -time.Second,
	} {
		if got, err := ParseDuration(text, time.Second); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	if got, err := ParseDuration("3", time.Minute); err != nil || got != 3*time.Minute {
		t.Errorf("3 minutes = %v, %v", got, err)
	}
	for _, text := range []string{"", "s", "soon", "1y", "1 h", "-1h", "0x10", "NaN", "1e9", "40000d", "1h-2m", "10us"} {
		if got, err := ParseDuration(text, time.Second); err == nil || Hint(err) == "" {
			t.Errorf("ParseDuration(%q) = %v, %v; want an error with a hint", text, got, err)
		}
	}
}

func TestCheckUTF8(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "häß": "", "a\x00b": "", "\ufffd": "", "a\xffb": "it is not UTF-8: byte 2 is 0xff", "ä\xc3": "it is not UTF-8: byte 3 is 0xc3",
	} {
		got := ""
		if err := CheckUTF8([]byte(text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("CheckUTF8(%q) = %q, want %q", text, got, want)
		}
	}
}
