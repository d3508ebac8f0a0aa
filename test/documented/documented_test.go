package documented

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestMissing(t *testing.T) {
	got := missing("- one and\n  two\n- three\n", []string{"one and two", "three", "four", ""})
	if !slices.Equal(got, []string{"four", ""}) {
		t.Errorf("missing are %q", got)
	}
}

// TestTheTableAddsUp: each row is counted by a test that runs its cases, so the sum is counted, too.
func TestTheTableAddsUp(t *testing.T) {
	text, err := os.ReadFile(document(t))
	if err != nil {
		t.Fatal(err)
	}
	rows, sum := table(string(text))
	if want := sum.row(total); !strings.Contains(string(text), "\n"+want+"\n") {
		t.Errorf("the rows add up to %s", want)
	}
	const cases = 2736
	if sum.cases() != cases {
		t.Errorf("%d cases in %d rows, of %d that there are", sum.cases(), len(rows), cases)
	}
	for what, c := range map[string]struct{ got, per1000 int }{
		"equal": {sum[Equal], 900}, "equal or stricter": {sum[Equal] + sum[Stricter], 960},
	} {
		if c.got*1000 < c.per1000*cases {
			t.Errorf("%d of %d answers are %s, less than %d of 1,000", c.got, cases, what, c.per1000)
		}
	}
	said := fmt.Sprintf("%.1f %% of the answers are equal, and %.1f %% are equal or stricter.", 100*float64(sum[Equal])/cases, 100*float64(sum[Equal]+sum[Stricter])/cases)
	if missing(string(text), []string{said}) != nil {
		t.Errorf("the page does not say: %s", said)
	}
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		same, brine, salt bool
		want              Answer
	}{
		{true, true, true, Equal}, {true, false, false, Equal}, {false, false, true, Stricter}, {false, true, false, Laxer},
		{false, true, true, Different}, {false, false, false, Different},
	} {
		if got := Refusal(c.same, c.brine, c.salt); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
