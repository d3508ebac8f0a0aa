package upstream

import (
	"encoding/json"
	"net"
	"os"
	"strconv"
	"testing"
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
	for _, c := range file.Cases {
		name, isText := c.Master.(string)
		if !isText {
			continue // the configuration has texts only
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
		switch reason := differentAddresses[c.ID]; {
		case got != want && reason == "":
			t.Errorf("%s: %q is %s, in Salt %s", c.ID, name, got, want)
		case got == want && reason != "":
			t.Errorf("%s is listed as a difference and is none: %q is %s", c.ID, name, got)
		}
	}
}
