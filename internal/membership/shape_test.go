package membership

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/member"
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

// TestMembersThatOnlyOthersNameAreShown: with a mistake in one's own cluster_peers, the member that is linked is shown
// beside the one that others do not name, and whose list and number of copies differ.
func TestMembersThatOnlyOthersNameAreShown(t *testing.T) {
	own := identity{name: nameOf("127.0.0.1:4520"), peers: []string{"127.0.0.1:4520", "127.0.0.2:4520", "127.0.0.5:4520"}, copies: 3}
	others := identity{peers: []string{"127.0.0.1:4520", "127.0.0.2:4520", "127.0.0.3:4520"}, copies: 3}
	all := map[string]said{
		own.name:                 {shape: own.shape()},
		nameOf("127.0.0.2:4520"): {}, // of an earlier version
		nameOf("127.0.0.3:4520"): {shape: others.shape()},
		nameOf("127.0.0.5:4520"): {shape: shape{own.peers, 5}},
	}
	linked := []member.Member{{Card: member.Card{Name: nameOf("127.0.0.3:4520")}}, {Card: member.Card{Name: "starting"}}}
	var got []string
	for _, one := range members(own, all, linked) {
		got = append(got, fmt.Sprintf("%s %s self=%v running=%v same=%v copies=%d", one.Name, one.Address, one.Self, one.Running, one.SamePeers, one.Copies))
	}
	want := []string{
		"127_0_0_1_4520 127.0.0.1:4520 self=true running=true same=true copies=0",
		"127_0_0_2_4520 127.0.0.2:4520 self=false running=true same=true copies=0",
		"127_0_0_3_4520 127.0.0.3:4520 self=false running=true same=false copies=0",
		"127_0_0_5_4520 127.0.0.5:4520 self=false running=true same=true copies=5",
		"starting  self=false running=false same=false copies=0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("shown are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestARemovedMemberIsNoneThatDoesNotRun: unless another one with a key of its own has taken its place.
func TestARemovedMemberIsNoneThatDoesNotRun(t *testing.T) {
	removed := []member.Removal{{Fingerprint: "aa", Name: "m1"}, {Fingerprint: "bb", Name: "m2"}}
	now := met{list: []member.Removal{{Fingerprint: "cc", Name: "m2"}, {Fingerprint: "dd", Name: "m3"}}}
	ever, err := now.ever(removed)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"m1": true, "m2": false, "m3": false, "m4": false} {
		if got := isRemoved(name, ever, removed); got != want {
			t.Errorf("%s was removed: %v, want %v", name, got, want)
		}
	}
}
