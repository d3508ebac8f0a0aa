package journal

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestHeard(t *testing.T) {
	other := func(active time.Duration, offline bool) *jetstream.PeerInfo {
		return &jetstream.PeerInfo{Name: "b", Active: active, Offline: offline}
	}
	for _, c := range []struct {
		name   string
		others []*jetstream.PeerInfo
		most   bool
		all    bool
	}{
		{"both", []*jetstream.PeerInfo{other(time.Second, false), other(time.Second, false)}, true, true},
		{"one of two", []*jetstream.PeerInfo{other(time.Hour, false), other(time.Second, false)}, true, false},
		{"the only other one, a moment ago", []*jetstream.PeerInfo{other(time.Second, false)}, true, true},
		{"none of two", []*jetstream.PeerInfo{other(heardTime, false), other(time.Hour, false)}, false, false},
		{"never", []*jetstream.PeerInfo{other(0, false), other(0, false)}, false, false},
		{"those that have left", []*jetstream.PeerInfo{other(time.Second, true), other(time.Second, true)}, false, false},
		{"one of four", []*jetstream.PeerInfo{other(time.Second, false), other(0, false), other(0, false), other(0, false)}, false, false},
		{"two of four", []*jetstream.PeerInfo{other(time.Second, false), other(time.Second, false), other(0, false), other(0, false)}, true, false},
		{"the only other one", []*jetstream.PeerInfo{other(time.Hour, false)}, false, false},
	} {
		if most, all := heard(&jetstream.ClusterInfo{Leader: "a", Replicas: c.others}); most != c.most || all != c.all {
			t.Errorf("%s: most %t, all %t", c.name, most, all)
		}
	}
}
