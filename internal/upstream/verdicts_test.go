package upstream

import (
	"fmt"
	"testing"
)

// TestRefusalsComeInTheOrderOfTheMasters, whichever master refuses first.
func TestRefusalsComeInTheOrderOfTheMasters(t *testing.T) {
	v := verdicts{uplinks: 9}
	want := ""
	for n := range v.uplinks {
		want += fmt.Sprintf("\nmaster %d refuses", n)
	}
	for n := v.uplinks - 1; n >= 0; n-- {
		err := v.refused(&Uplink{Number: n}, fmt.Errorf("master %d refuses", n))
		if last := n == 0; last != (err != nil) {
			t.Fatalf("after %d of 9 refusals the error is %v", 9-n, err)
		} else if last && err.Error() != want[1:] {
			t.Errorf("the error is\n%v\nwant%s", err, want)
		}
	}
}
