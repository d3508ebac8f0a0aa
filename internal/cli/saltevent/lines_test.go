package saltevent

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
)

// FuzzLines reads any input: every line becomes one event that can be fired, or
// is the mistake that ends the reading.
func FuzzLines(f *testing.F) {
	f.Add("{\"tag\":\"a\",\"data\":1}\n\n{}", "")
	f.Add("1\r\n\"x\"", "t")
	f.Add("\x00", "t")
	f.Fuzz(func(t *testing.T, text, tag string) {
		if tag != "" && event.CheckTag(tag) != nil {
			return
		}
		r := lineReader{in: bufio.NewReaderSize(strings.NewReader(text), 16), tag: tag}
		events := 0
		for {
			l := r.next()
			if l.err != nil {
				if errors.Is(l.err, io.EOF) && tag == "" && events > strings.Count(text, "\n")+1 {
					t.Errorf("%d events of %q", events, text)
				}
				return
			}
			events++
			if _, err := event.New(l.event.Tag, l.event.Data, "", time.Time{}); err != nil {
				t.Errorf("line %d of %q: %v", l.number, text, err)
			}
		}
	})
}

// TestALineOverTheLimit says so with both sizes, wherever it ends, and the next line is read.
func TestALineOverTheLimit(t *testing.T) {
	const limit = 20 // more than the buffer's 16
	within, over := strings.Repeat("a", limit-1)+"\n", strings.Repeat("b", 3*limit)
	in := bufio.NewReaderSize(strings.NewReader(within+over+"\n"+within+over), 16)
	for i, want := range []string{within, "", within, ""} {
		line, err := readLimited(in, limit)
		if string(line) != want {
			t.Errorf("line %d is %q, want %q", i+1, line, want)
		}
		if want != "" && err != nil {
			t.Errorf("line %d: %v", i+1, err)
		}
		if want == "" && (!errors.Is(err, errBadLine) || !strings.Contains(err.Error(), "too large") || !strings.Contains(err.Error(), "the limit is 20")) {
			t.Errorf("line %d: %v", i+1, err)
		}
	}
	if _, err := readLimited(in, limit); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}

func TestSince(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"1h": now.Add(-time.Hour), "2d": now.AddDate(0, 0, -2), "90s": now.Add(-90 * time.Second), "0.5d": now.Add(-12 * time.Hour),
		"2026-11-20T10:00:00Z": time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), "2026-11-20": time.Date(2026, 11, 20, 0, 0, 0, 0, time.Local),
	} {
		moment, seq, err := readSince("--since", text, now)
		if err != nil || seq != 0 || !moment.Equal(want) {
			t.Errorf("%s: %v, %d, %v; want %v", text, moment, seq, err, want)
		}
	}
	if _, seq, err := readSince("--since", "0", now); seq != 1 || err != nil {
		t.Errorf("0 is the sequence %d, %v", seq, err)
	}
	for _, text := range []string{"yesterday", "-1h", "-1", "1x", "d"} {
		if moment, seq, err := readSince("--since", text, now); err == nil {
			t.Errorf("%s: %v, %d", text, moment, seq)
		}
	}
}
