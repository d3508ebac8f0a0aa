package saltkey

import (
	"strings"

	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// local is the state of the master's own keys, which finger shows beside those of the minions.
const local pki.State = -1

func sectionName(s pki.State) string {
	if s == local {
		return "local"
	}
	return s.Section()
}

// labels returns for each entry the text that names it on the command line: the id, or id and
// fingerprint if several entries would otherwise have the same label. Under headings, an id may
// occur once for each state.
func (t *tool) labels(entries []pki.Entry, underHeadings bool) []string {
	type place struct {
		id    salt.MinionID
		state pki.State
	}
	placeOf := func(e pki.Entry) place {
		if !underHeadings {
			return place{id: e.ID}
		}
		return place{e.ID, e.State}
	}
	keys := map[place]int{}
	for _, e := range entries {
		keys[placeOf(e)]++
	}
	labels := make([]string, len(entries))
	for i, e := range entries {
		labels[i] = string(e.ID)
		if keys[placeOf(e)] > 1 {
			labels[i] += "@" + t.fingerprint(e.Key)
		}
	}
	return labels
}

// fingerprint returns a key's fingerprint, prefixed with the name of its hash.
func (t *tool) fingerprint(key pki.PublicKey) string {
	return strings.ToUpper(t.hash) + ":" + t.bareFingerprint(key)
}

func (t *tool) bareFingerprint(key pki.PublicKey) string {
	finger, _ := key.Fingerprint(t.hash) // newTool has checked the hash
	return finger
}

// severalKeys reports whether some id has more than one key.
func severalKeys(entries []pki.Entry) bool {
	seen := map[salt.MinionID]bool{}
	for _, e := range entries {
		if seen[e.ID] {
			return true
		}
		seen[e.ID] = true
	}
	return false
}

// idLists returns the entries as lists of labels by state. Wanted states without an entry have
// an empty list.
func (t *tool) idLists(entries []pki.Entry, wanted []pki.State) map[string]any {
	data := map[string]any{}
	for _, s := range wanted {
		data[sectionName(s)] = []any{}
	}
	for i, label := range t.labels(entries, true) {
		name := sectionName(entries[i].State)
		list, _ := data[name].([]any)
		data[name] = append(list, label)
	}
	return data
}

// details returns the results of describe for the entries, by state and label.
func (t *tool) details(entries []pki.Entry, describe func(pki.Entry) any) map[string]any {
	data := map[string]any{}
	for i, label := range t.labels(entries, true) {
		name := sectionName(entries[i].State)
		if data[name] == nil {
			data[name] = map[string]any{}
		}
		data[name].(map[string]any)[label] = describe(entries[i])
	}
	return data
}

// keyList returns the list of entries for people, whatever --out says.
func (t *tool) keyList(entries []pki.Entry) (string, error) {
	style := t.style
	style.Color = style.Color && t.forPeople() // otherwise it goes to standard error
	o, err := output.New(textForm, style)
	if err != nil {
		return "", err
	}
	return o.Format(t.idLists(entries, nil))
}
