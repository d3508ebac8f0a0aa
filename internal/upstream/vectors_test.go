package upstream

import (
	"cmp"
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
var differentAddresses = map[string]string{
	"master_failover-0106": "an address in brackets may have no port; Salt's minion ends",
	"master_failover-0108": "text after the closing bracket is a mistake, and is not ignored",
	"master_failover-0116": "an empty name has no address; Salt's minion ends",
	"master_failover-0123": "a port that cannot exist is a mistake",
	"master_failover-0132": "a number is taken as a name; Salt's minion ends",
	"master_failover-0129": "the resolver decides whether a name is valid; Salt's minion ends",
	"master_failover-0131": "null means the default name, salt; Salt's minion ends",
}

func TestNamesOfMastersAsInSalt(t *testing.T) {
	text, err := os.ReadFile("testdata/addresses.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			ID, Host, Error, Format string
			Master                  any
			Port                    int
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	documented.Differences(t, slices.Collect(maps.Values(differentAddresses))...)
	unseen := maps.Clone(differentAddresses)
	var count documented.Comparison
	for _, c := range file.Cases {
		reason := differentAddresses[c.ID]
		delete(unseen, c.ID)
		want := "refused"
		if c.Error == "" {
			want = net.JoinHostPort(c.Host, strconv.Itoa(cmp.Or(c.Port, 4506)))
		}
		got := "refused"
		if cfg, err := load(t, masterSetting(t, c.Master, c.Format)); err == nil {
			got = WithPort(cfg.Master[0], cfg.MasterPort)
		}
		count.Count(documented.Refusal(got == want, got != "refused", c.Error == ""))
		switch {
		case got != want && reason == "":
			t.Errorf("%s: %v is %s, in Salt %s", c.ID, c.Master, got, want)
		case got == want && reason != "":
			t.Errorf("%s is listed as a difference and is none: %v is %s", c.ID, c.Master, got)
		}
	}
	for id := range unseen {
		t.Errorf("%s is listed as different, and is not a case", id)
	}
	count.Stands(t, "names of masters")
}

// masterSetting is a file with the master and how it is written.
func masterSetting(t *testing.T, master any, format string) json.RawMessage {
	settings := map[string]any{"master": master}
	if format != "" {
		settings["master_uri_format"] = format
	}
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
