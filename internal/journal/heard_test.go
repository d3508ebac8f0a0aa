package journal

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestIsHeard(t *testing.T) {
	other := func(active time.Duration, offline bool) *jetstream.PeerInfo {
		return &jetstream.PeerInfo{Name: "b", Active: active, Offline: offline}
	}
	for _, c := range []struct {
		name   string
		others []*jetstream.PeerInfo
		want   bool
	}{
		{"both", []*jetstream.PeerInfo{other(time.Second, false), other(time.Second, false)}, true},
		{"one of two", []*jetstream.PeerInfo{other(time.Hour, false), other(time.Second, false)}, true},
		{"none of two", []*jetstream.PeerInfo{other(heardTime, false), other(time.Hour, false)}, false},
		{"never", []*jetstream.PeerInfo{other(0, false), other(0, false)}, false},
		{"those that have left", []*jetstream.PeerInfo{other(time.Second, true), other(time.Second, true)}, false},
		{"one of four", []*jetstream.PeerInfo{other(time.Second, false), other(0, false), other(0, false), other(0, false)}, false},
		{"two of four", []*jetstream.PeerInfo{other(time.Second, false), other(time.Second, false), other(0, false), other(0, false)}, true},
		{"the only other one", []*jetstream.PeerInfo{other(time.Hour, false)}, false},
	} {
		if got := isHeard(&jetstream.ClusterInfo{Leader: "a", Replicas: c.others}); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
