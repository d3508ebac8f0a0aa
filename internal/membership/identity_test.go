package membership

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
)

// settings returns the settings of a valid member.
func settings(change func(*config.Master)) *config.Master {
	cfg := config.NewMaster()
	cfg.ClusterID, cfg.MasterSignPubkey, cfg.Interface = "prod", true, "127.0.0.2"
	cfg.ClusterPeers = []string{"127.0.0.3", "127.0.0.2", "198.51.100.7:4521"}
	if change != nil {
		change(cfg)
	}
	return cfg
}

func TestIdentify(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*config.Master)
		want   identity
	}{
		"by the interface": {nil, identity{name: "127_0_0_2_4520", number: 0, self: "127.0.0.2:4520", copies: 3}},
		"by the port": {func(c *config.Master) {
			c.Interface, c.ClusterPort, c.ClusterPeers = "0.0.0.0", 4522, []string{"127.0.0.1:4523", "127.0.0.1:4522", "127.0.0.1:4521"}
		}, identity{name: "127_0_0_1_4522", number: 1, self: "127.0.0.1:4522", copies: 3}},
		"by an address of this machine": {func(c *config.Master) {
			c.Interface, c.ClusterPeers = "0.0.0.0", []string{"198.51.100.1", "198.51.100.2", "localhost"}
		}, identity{name: "localhost_4520", number: 2, self: "localhost:4520", copies: 3}},
		"by cluster_advertise": {func(c *config.Master) { c.ClusterAdvertise = "198.51.100.7:4521" },
			identity{name: "198_51_100_7_4521", number: 2, self: "198.51.100.7:4521", copies: 3}},
		"five copies": {func(c *config.Master) {
			c.ClusterPeers, c.ClusterCopies = append(c.ClusterPeers, "198.51.100.8", "198.51.100.9"), 5
		}, identity{name: "127_0_0_2_4520", number: 0, self: "127.0.0.2:4520", copies: 5}},
		"IPv6": {func(c *config.Master) {
			c.ClusterPeers, c.ClusterAdvertise = []string{"[2001:db8::1]:4520", "2001:db8::2", "::1"}, "[::1]"
		},
			identity{name: "ip___1__4520", number: 2, self: "[::1]:4520", copies: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := identify(t.Context(), settings(test.change), ofMachine)
			if err != nil {
				t.Fatal(err)
			}
			if got.name != test.want.name || got.number != test.want.number || got.self != test.want.self || got.copies != test.want.copies || !slices.IsSorted(got.peers) {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*config.Master)
		want   string // in the error; "" for none
	}{
		"a member":             {nil, ""},
		"a single master":      {func(c *config.Master) { *c = *config.NewMaster() }, ""},
		"peers without a name": {func(c *config.Master) { c.ClusterID = "" }, "cluster_id is not"},
		"two members":          {func(c *config.Master) { c.ClusterPeers = c.ClusterPeers[:2] }, "at least 3 members"},
		"ten members": {func(c *config.Master) {
			for n := range 7 {
				c.ClusterPeers = append(c.ClusterPeers, fmt.Sprintf("198.51.100.%d", 10+n))
			}
		}, "at most 9 members"},
		"a cluster with a dot":       {func(c *config.Master) { c.ClusterID = "prod.eu" }, "cluster_id"},
		"a cluster with a space":     {func(c *config.Master) { c.ClusterID = "my cluster" }, "cluster_id"},
		"a cluster with _ first":     {func(c *config.Master) { c.ClusterID = "_x" }, "cluster_id"},
		"a long name":                {func(c *config.Master) { c.ClusterPeers[0] = strings.Repeat("m", 60) }, "cannot be the address"},
		"a name with - first":        {func(c *config.Master) { c.ClusterPeers[0] = "-m1" }, "cannot be the address"},
		"nobody named":               {func(c *config.Master) { c.ClusterPeers = nil }, "at least 3 members"},
		"one twice":                  {func(c *config.Master) { c.ClusterPeers[0] = "127.0.0.2:4520" }, "named twice"},
		"advertised elsewhere":       {func(c *config.Master) { c.ClusterAdvertise = "198.51.100.9" }, "is not in cluster_peers"},
		"advertised with a bad port": {func(c *config.Master) { c.ClusterAdvertise = "127.0.0.1:x" }, "cluster_advertise: \"127.0.0.1:x\" has no port from 1 to 65535: name this master as"},
		"no host":                    {func(c *config.Master) { c.ClusterPeers[2] = ":4520" }, "is not a host:port"},
		"no port":                    {func(c *config.Master) { c.ClusterPeers[2] = "a:b" }, "has no port from 1 to 65535"},
		"a port too high":            {func(c *config.Master) { c.ClusterPeers[2] = "127.0.0.22:99999" }, "has no port from 1 to 65535"},
		"a text with commas":         {func(c *config.Master) { c.ClusterPeers = []string{"m1,m2:4520,m3"} }, "write a list"},
		"a list in one entry":        {func(c *config.Master) { c.ClusterPeers[2] = "a, b" }, "is not a host:port"},
		"one copy":                   {func(c *config.Master) { c.ClusterCopies = 1 }, "with fewer than 3 copies"},
		"two copies":                 {func(c *config.Master) { c.ClusterCopies = 2 }, "with fewer than 3 copies"},
		"four copies": {func(c *config.Master) {
			c.ClusterPeers, c.ClusterCopies = append(c.ClusterPeers, "198.51.100.8", "198.51.100.9"), 4
		}, "as many members as 3 do"},
		"too many copies":          {func(c *config.Master) { c.ClusterCopies = 5 }, "5 copies need as many members"},
		"unsigned":                 {func(c *config.Master) { c.MasterSignPubkey = false }, "master_sign_pubkey is not"},
		"a mirror, too":            {func(c *config.Master) { c.JournalMirror = "198.51.100.1:4507" }, "journal_mirror"},
		"NATS servers, too":        {func(c *config.Master) { c.NATSServers = []string{"198.51.100.1:4222"} }, "nats_servers"},
		"the port of minions":      {func(c *config.Master) { c.ClusterPort = c.RetPort }, "ret_port"},
		"names that fall together": {func(c *config.Master) { c.ClusterPeers[2] = "127.0.0_2" }, "named twice"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(settings(test.change))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error()+": "+salt.Hint(err), test.want)) {
				t.Errorf("%v: %s, want %q", err, salt.Hint(err), test.want)
			}
		})
	}
}

// TestABrokerTakesWhatWasChecked: a name that is found in order, and that the broker then refuses, would be told
// at a start only, in other words than those of the settings.
func TestABrokerTakesWhatWasChecked(t *testing.T) {
	for _, id := range []string{"prod", "prod-2_x", "2prod", strings.Repeat("p", 64), strings.Repeat("p", 65), "prod.eu", "my cluster", "_x", "-x", "\u00e4"} {
		for _, peer := range []string{"198.51.100.7:4521", "m1.example.com", "_m1", "-m1", "[2001:db8::1]:4520", "fe80::1%eth0", "::", strings.Repeat("m", 59), strings.Repeat("m", 60), "\u00e4.example.com"} {
			cfg := settings(func(c *config.Master) { c.ClusterID, c.ClusterPeers[2] = id, peer })
			if Check(cfg) != nil {
				continue
			}
			i, err := identify(t.Context(), cfg, ofMachine)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range append(i.place().All, id) {
				if err := broker.CheckName(name); err != nil {
					t.Errorf("%q with %q was found in order: %v", id, peer, err)
				}
			}
		}
	}
	cfg := settings(func(c *config.Master) { c.ClusterPeers = []string{"[2001:db8::1]:4520", "127.0.0.2", "_m1"} })
	if err := Check(cfg); err != nil {
		t.Errorf("members with IPv6 and with _ first: %v", err)
	}
}
