package saltmaster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/membership"
)

// TestARestoreTellsOfTheAddressesOfMinions: nobody else tells minions where their master is.
func TestARestoreTellsOfTheAddressesOfMinions(t *testing.T) {
	stream := func(name string) backup.Stream {
		return backup.Stream{Name: name, Settings: json.RawMessage("{}")}
	}
	alone, hosted := &backup.Manifest{Streams: []backup.Stream{stream("EVENTS")}}, &backup.Manifest{Streams: []backup.Stream{stream("EVENTS_nats")}}
	cluster := &backup.Manifest{Streams: []backup.Stream{stream("EVENTS_m1"), stream("EVENTS_m2"), stream("EVENTS_m3")}}
	const forget, address = "its minions forget the other members", "If this master has another address than before"
	for _, c := range []struct {
		backup *backup.Manifest
		place  membership.Place
		says   string
	}{
		{alone, membership.Place{}, address},
		{hosted, membership.Place{Hosted: true, Name: "nats"}, address},
		{hosted, membership.Place{}, address},
		{alone, membership.Place{Cluster: "prod", Name: "m1"}, address},
		{cluster, membership.Place{Cluster: "prod", Name: "m1"}, address},
		{cluster, membership.Place{}, forget},
	} {
		if said := addresses(&backup.Result{Manifest: c.backup}, c.place); !strings.Contains(said, c.says) || !strings.HasSuffix(said, ".\n") {
			t.Errorf("%q at %+v: %q, want %q", c.backup.Members(), c.place, said, c.says)
		}
	}
	if said := describe(&backup.Result{Manifest: cluster}, membership.Place{Cluster: "prod", Name: "m1"}); !strings.Contains(said, "systemctl start --no-block salt-master") {
		t.Errorf("members wait for each other: %q", said)
	}
}
