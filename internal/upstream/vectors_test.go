package upstream

import (
	"encoding/json"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/brinebus/brine/test/documented"
)

// differentAddresses are the names that Brine takes apart in another way than Salt.
// Whatever cannot be a name has no address, and so is a master that is not there.
var differentAddresses = map[string]string{
	"master_failover-0106": "an address in brackets without a port is that address; Salt stops",
	"master_failover-0108": "what follows the bracket is not left out: it is no address",
	"master_failover-0109": "an empty port is none; Salt stops",
	"master_failover-0116": "an empty name has no address; Salt stops",
	"master_failover-0127": "a URL is no name, and has no address; Salt stops",
	"master_failover-0129": "the resolver says what is a name; Salt stops",
	"master_failover-0130": "a blank behind the port: the port cannot be reached",
	"master_failover-0126": "an address is kept as it is written",
	"master_failover-0131": "no name at all is the one that everybody has without a setting; Salt stops",
	"master_failover-0132": "a number is the name that is written so; Salt stops",
	"master_failover-0136": "ip_only does not forbid a port; Salt stops",
}

func TestNamesOfMastersAsInSalt(t *testing.T) {
	text, err := os.ReadFile("testdata/addresses.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			ID, Host, Error string
			Master          any
			Port            int
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	documented.Differences(t, slices.Collect(maps.Values(differentAddresses))...)
	unseen := maps.Clone(differentAddresses)
	for _, c := range file.Cases {
		reason := differentAddresses[c.ID]
		delete(unseen, c.ID)
		name, isText := c.Master.(string)
		if !isText {
			if _, err := load(t, masterSetting(t, c.Master)); c.Error == "" || (err == nil) != (reason != "") {
				t.Errorf("%s: %v as master: %v; Salt: %q, listed as different: %q", c.ID, c.Master, err, c.Error, reason)
			}
			continue
		}
		want := c.Error
		if want == "" {
			port := c.Port
			if port == 0 {
				port = 4506
			}
			want = net.JoinHostPort(c.Host, strconv.Itoa(port))
		}
		got := WithPort(name, 4506)
		switch {
		case got != want && reason == "":
			t.Errorf("%s: %q is %s, in Salt %s", c.ID, name, got, want)
		case got == want && reason != "":
			t.Errorf("%s is listed as a difference and is none: %q is %s", c.ID, name, got)
		}
	}
	for id := range unseen {
		t.Errorf("%s is listed as different, and is no case", id)
	}
}

// masterSetting is a file whose one setting is the master.
func masterSetting(t *testing.T, master any) json.RawMessage {
	text, err := json.Marshal(map[string]any{"master": master})
	if err != nil {
		t.Fatal(err)
	}
	return text
}
