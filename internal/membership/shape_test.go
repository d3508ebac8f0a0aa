package membership

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/brinebus/brine/test/capture"
)

// TestOtherSettingsOfAClusterAreLoggedOnce: a member says what its settings are, and a difference is logged
// when it comes and when it goes.
func TestOtherSettingsOfAClusterAreLoggedOnce(t *testing.T) {
	three := identity{peers: []string{"m1:4520", "m2:4520", "m3:4520"}, copies: 3}
	other := identity{peers: []string{"10.0.0.1:4520", "m2:4520", "m3:4520"}, copies: 3}
	five := identity{peers: three.peers, copies: 5}
	var out capture.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var c shapes
	for n, step := range []struct {
		m2   identity
		logs string
	}{
		{three, ""}, {other, "WARN 10.0.0.1:4520"}, {other, ""}, {three, "INFO again"}, {five, "WARN cluster_copies=5"}, {identity{}, "INFO"},
	} {
		text, err := json.Marshal(said{shape: step.m2.shape()})
		if err != nil {
			t.Fatal(err)
		}
		var heard said
		if err := json.Unmarshal(text, &heard); err != nil {
			t.Fatal(err)
		}
		before := len(out.String())
		c.compare(three.shape(), map[string]said{"m2": heard, "m3": {shape: three.shape()}, "earlier": {}}, log)
		got := out.String()[before:]
		for _, want := range strings.Fields(step.logs) {
			if !strings.Contains(got, want) || !strings.Contains(got, "member=m2") {
				t.Errorf("step %d: logged %q, want %s", n, got, want)
			}
		}
		if lines := strings.Count(got, "\n"); lines != min(1, len(step.logs)) {
			t.Errorf("step %d: logged %q", n, got)
		}
	}
}
