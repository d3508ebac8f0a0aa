package target

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

func many(word string, n int) string {
	return strings.TrimSuffix(strings.Repeat(word+" or ", n), " or ")
}

// What costs much to compile, or to hold against each minion, is refused before that is
// tried; what people write is not.
func TestDearTargetsAreRefused(t *testing.T) {
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("web%05d.example.com", i)
	}
	for name, c := range map[string]struct {
		expr string
		kind Kind
		dear bool
	}{
		"names":                    {strings.Join(names, ","), List, false},
		"names in a compound":      {strings.Join(names, " or "), Compound, false},
		"a list in a compound":     {"L@" + strings.Join(names, ",") + " and G@os:Debian", Compound, false},
		"many words":               {many("G@os:Debian", 3000), Compound, false},
		"regular expressions":      {many(`E@web\d+`, 500), Compound, false},
		"a lookahead":              {many(`E@(?!db)\w+`, 20), Compound, false},
		"grains with many keys":    {many("G@a:b:c:d:e:f", 200), Compound, false},
		"too many regexps":         {many(`E@web\d+`, 5000), Compound, true},
		"too long regexps":         {many(`E@(`+strings.Repeat("a|", 1500)+"b)", 200), Compound, true},
		"too many lookaheads":      {many(`E@(?=(a+)+$)b`, 200), Compound, true},
		"regexps at each colon":    {"a" + strings.Repeat(":(?=b)", 60), GrainPCRE, true},
		"too many keys, each word": {many("G@"+strings.Repeat("a:", 60)+"b", 50), Compound, true},
		"before one is compiled":   {"E@( or " + many(`E@web\d+`, 5000), Compound, true},
		"too long":                 {strings.Repeat("a,", MaxText), List, true},
	} {
		began := time.Now()
		_, err := Parse(c.expr, c.kind, Options{})
		if errors.Is(err, ErrTooExpensive) != c.dear || !c.dear && err != nil {
			t.Errorf("%s: %.200v", name, err)
		}
		t.Logf("%s: %s", name, time.Since(began))
	}
}

// A regular expression of one who asks, against a value that somebody else has made for
// it: the steps of a match count what is compared.
func TestLongValuesCountAsTheirLength(t *testing.T) {
	list := make([]any, 1000)
	for i := range list {
		list[i] = strings.Repeat("ab", 50_000)
	}
	f := Facts{ID: salt.MinionID("evil"), Grains: map[string]any{"x": list}}
	tgt, err := Parse("x:("+strings.Repeat("a|b|", 900)+"c)*z", GrainPCRE, Options{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := tgt.Match(f); !errors.Is(err, ErrTooExpensive) {
		t.Errorf("matched: %v", err)
	}
	t.Logf("ended after %s", time.Since(began))
}
