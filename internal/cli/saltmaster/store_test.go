package saltmaster

import (
	"encoding/json"
	"flag"
	"strings"
	"testing"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/config"
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

// TestARepairDoubtsPlans: what --repair and --restore ask for leaves no plan of a store that was opened alone certain.
func TestARepairDoubtsPlans(t *testing.T) {
	opts := urcli.NewContext(urcli.NewApp(), flag.NewFlagSet("salt-master", flag.ContinueOnError), nil)
	r := request(opts, new(config.Master), "/store", "", nil)
	got := r.Unconfirmed("plans_m2", []byte(`{"start":{"jid":"20260101000000000001","minions":["web1"]},"started":true}`))
	if !strings.Contains(string(got), "20260101000000000001") || strings.Contains(string(got), "started") {
		t.Errorf("a plan becomes %s", got)
	}
}
