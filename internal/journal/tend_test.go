package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestAnElectionIsNoFailureToMakeSpace: nobody answers while a leader is elected, which passes. It is an error if it
// takes longer, for a single master, and for another reason.
func TestAnElectionIsNoFailureToMakeSpace(t *testing.T) {
	mute := fmt.Errorf("look: %w", context.DeadlineExceeded)
	begin := time.Now()
	for _, test := range []struct {
		name   string
		copies int
		errs   map[time.Duration]error
		want   string
	}{
		{"an election", 3, map[time.Duration]error{0: mute, 10 * time.Second: mute}, "level=WARN"},
		{"no leader", 3, map[time.Duration]error{0: errNoLeader}, "level=WARN"},
		{"two elections", 3, map[time.Duration]error{0: mute, 10 * time.Second: nil, 40 * time.Second: mute}, "level=WARN"},
		{"too long", 3, map[time.Duration]error{0: mute, electionTime + time.Second: mute}, "level=WARN level=ERROR"},
		{"a single master", 0, map[time.Duration]error{0: mute}, "level=ERROR"},
		{"another reason", 3, map[time.Duration]error{0: errors.New("disk")}, "level=ERROR"},
	} {
		var text bytes.Buffer
		tend := tender{journal: &Journal{copies: test.copies}, log: slog.New(slog.NewTextHandler(&text, nil))}
		for at := time.Duration(0); at < time.Minute; at += time.Second {
			if err, is := test.errs[at]; is {
				tend.tell(err, begin.Add(at))
			}
		}
		var levels []string
		for _, word := range strings.Fields(text.String()) {
			if strings.HasPrefix(word, "level=") {
				levels = append(levels, word)
			}
		}
		if got := strings.Join(levels, " "); got != test.want {
			t.Errorf("%s logs %s", test.name, text.String())
		}
	}
}
