package module

import (
	"maps"
	"testing"

	"github.com/brinebus/brine/internal/function"
)

// beaconSet has beacons and remembers.
type beaconSet map[string]any

func (b beaconSet) Beacons() map[string]any { return maps.Clone(b) }

func (b beaconSet) ChangeBeacons(change func(all map[string]any) string) (string, error) {
	return change(b), nil
}

func (beaconSet) SaveBeacons() (string, error) { return "", nil }
func (beaconSet) ResetBeacons() error          { return nil }

// TestASwitchedBeaconKeepsItsSettings: also those in the same item, and one without settings can be switched, too.
func TestASwitchedBeaconKeepsItsSettings(t *testing.T) {
	type dict = map[string]any
	for name, c := range map[string]struct{ before, after any }{
		"none":         {nil, []any{dict{"enabled": false}}},
		"a dictionary": {dict{"interval": int64(5)}, dict{"interval": int64(5), "enabled": false}},
		"a list":       {[]any{dict{"interval": int64(5)}, dict{"enabled": true}}, []any{dict{"enabled": false}, dict{"interval": int64(5)}}},
		"two in one":   {[]any{dict{"interval": int64(5), "enabled": true}}, []any{dict{"enabled": false}, dict{"interval": int64(5)}}},
		"null":         {[]any{dict{"enabled": nil}, dict{"interval": nil}}, []any{dict{"enabled": false}, dict{"interval": nil}}},
	} {
		all := beaconSet{"status": c.before}
		h := &function.Host{Services: &Services{Beacons: all}}
		same(t, name, good(t, h, "beacons.disable_beacon", nil, "status"), dict{"result": true, "comment": "Disabled beacon status on minion."})
		same(t, name, all["status"], c.after)
	}
}
