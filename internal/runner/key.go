package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

// KeyStore is the master's store of the minions' keys, as in package pki. A change takes effect on
// connections at once, since the master watches the store.
type KeyStore interface {
	List() ([]pki.Entry, []pki.Problem, error)
	Accept(pki.Entry) error
	Reject(pki.Entry) error
	Delete(pki.Entry) error
}

// fingerHash is the hash of fingerprints without a prefix.
const fingerHash = "sha256"

// keyModule manages the keys of minions, like salt-key.
func keyModule(h *Host) *function.Module {
	k := keys{h}
	match := function.Param{Name: "match", Kind: function.String, Required: true}
	dict := []function.Param{{Name: "match", Kind: function.Map, Required: true}}
	also := func(name string) function.Param {
		return function.Param{Name: name, Kind: function.Bool, Default: false}
	}
	hash := function.Param{Name: "hash_type", Kind: function.String, Default: fingerHash}
	return &function.Module{Name: "key", Doc: "The keys of minions: which there are, and which of them are accepted.", Functions: []function.Function{
		{Name: "accept", Class: function.Changes, Doc: "Accept the waiting keys whose ids match. Return them.", Example: "salt-run --wheel key.accept 'web*'",
			Params: []function.Param{match, also("include_rejected"), also("include_denied")}, Run: k.change(acceptKeys)},
		{Name: "accept_dict", Class: function.Changes, Doc: "Accept the keys that are listed by state. Return them.", Example: "salt-run --wheel key.accept_dict '{minions_pre: [web1, web2]}'",
			Params: dict, Run: k.changeListed(acceptKeys)},
		{Name: "delete", Class: function.Changes, Doc: "Delete the keys whose ids match, whatever their state. Return them.", Example: "salt-run --wheel key.delete web1",
			Params: []function.Param{match}, Run: k.change(deleteKeys)},
		{Name: "delete_dict", Class: function.Changes, Doc: "Delete the keys that are listed by state. Return them.", Example: "salt-run --wheel key.delete_dict '{minions: [web1]}'",
			Params: dict, Run: k.changeListed(deleteKeys)},
		{Name: "finger", Class: function.Shared, Doc: "Return the fingerprints of the keys whose ids match, by state.", Example: "salt-run --wheel key.finger '*'",
			Params: []function.Param{match, hash}, Run: k.finger},
		{Name: "finger_master", Class: function.Shared, Doc: "Return the fingerprint of the master's own key.", Example: "salt-run --wheel key.finger_master",
			Params: []function.Param{hash}, Run: k.fingerMaster},
		{Name: "key_str", Class: function.Shared, Doc: "Return the keys whose ids match as text, by state.", Example: "salt-run --wheel key.key_str web1",
			Params: []function.Param{match}, Run: k.text},
		{Name: "list", Class: function.Shared, Doc: "Return the ids whose keys are in a state: accepted, unaccepted, rejected, denied or all.", Example: "salt-run --wheel key.list unaccepted",
			Params: []function.Param{match}, Run: k.list},
		{Name: "list_all", Class: function.Shared, Doc: "Return all ids by the state of their keys.", Example: "salt-run --wheel key.list_all",
			Run: k.listAll},
		{Name: "name_match", Class: function.Shared, Doc: "Return the ids that match, by the state of their keys.", Example: "salt-run --wheel key.name_match 'web*'",
			Params: []function.Param{match}, Run: k.nameMatch},
		{Name: "reject", Class: function.Changes, Doc: "Reject the waiting keys whose ids match. Return them.", Example: "salt-run --wheel key.reject 'web*'",
			Params: []function.Param{match, also("include_accepted"), also("include_denied")}, Run: k.change(rejectKeys)},
		{Name: "reject_dict", Class: function.Changes, Doc: "Reject the keys that are listed by state. Return them.", Example: "salt-run --wheel key.reject_dict '{minions_pre: [web1]}'",
			Params: dict, Run: k.changeListed(rejectKeys)},
	}}
}

type keys struct{ *Host }

// keyChange is one of the three decisions about keys.
type keyChange struct {
	apply  func(KeyStore, pki.Entry) error
	states []pki.State          // in which a pattern searches for keys
	wider  map[string]pki.State // parameters that add further states
	result pki.State            // of the keys afterwards; Unknown if they are deleted
}

var (
	acceptKeys = keyChange{KeyStore.Accept, []pki.State{pki.Pending},
		map[string]pki.State{"include_rejected": pki.Rejected, "include_denied": pki.Denied}, pki.Accepted}
	rejectKeys = keyChange{KeyStore.Reject, []pki.State{pki.Pending},
		map[string]pki.State{"include_accepted": pki.Accepted, "include_denied": pki.Denied}, pki.Rejected}
	deleteKeys = keyChange{KeyStore.Delete, pki.AllStates(), nil, pki.Unknown}
)

// change returns the function that applies a decision to the keys that match.
func (k keys) change(ch keyChange) func(context.Context, *function.Call) (any, error) {
	return func(_ context.Context, c *function.Call) (any, error) {
		states := slices.Clone(ch.states)
		for name, s := range ch.wider {
			if c.Bool(name) {
				states = append(states, s)
			}
		}
		chosen, err := k.pick(c.String("match"), states)
		if err != nil {
			return nil, err
		}
		return k.carryOut(ch, chosen)
	}
}

// changeListed returns the function that applies a decision to the keys in a map of lists by state,
// as list returns it.
func (k keys) changeListed(ch keyChange) func(context.Context, *function.Call) (any, error) {
	return func(_ context.Context, c *function.Call) (any, error) {
		var chosen []pki.Entry
		for section, ids := range c.Map("match") {
			i := slices.IndexFunc(pki.AllStates(), func(s pki.State) bool { return s.Section() == section })
			list, ok := ids.([]any)
			if i < 0 || !ok {
				return nil, salt.WithHint(fmt.Errorf("%q is not a state with a list of ids", section), "for example: '{minions_pre: [web1, web2]}'")
			}
			for _, id := range list {
				picked, err := k.pick(fmt.Sprint(id), []pki.State{pki.AllStates()[i]})
				if err != nil {
					return nil, err
				}
				chosen = append(chosen, picked...)
			}
		}
		return k.carryOut(ch, chosen)
	}
}

// carryOut changes the keys that it can; the error names the others.
func (k keys) carryOut(ch keyChange, chosen []pki.Entry) (any, error) {
	if id := twice(chosen); ch.result == pki.Accepted && id != "" {
		return nil, salt.WithHint(fmt.Errorf("two of these keys are of %s, which can have one accepted key only", id),
			"name one by its fingerprint, as in web1@SHA256:0f:5b:13:aa")
	}
	var failures []error
	out := map[string]any{}
	for _, e := range chosen {
		if err := ch.apply(k.Keys, e); err != nil {
			failures = append(failures, err)
			continue
		}
		if ch.result != pki.Unknown {
			e.State = ch.result
		}
		add(out, e)
	}
	return out, errors.Join(failures...)
}

// twice returns an id that several of the keys have.
func twice(entries []pki.Entry) salt.MinionID {
	seen := map[salt.MinionID]bool{}
	for _, e := range entries {
		if seen[e.ID] {
			return e.ID
		}
		seen[e.ID] = true
	}
	return ""
}

// add puts the id of a key into the list of its state.
func add(out map[string]any, e pki.Entry) {
	list, _ := out[e.State.Section()].([]any)
	out[e.State.Section()] = append(list, string(e.ID))
}

func (k keys) pick(match string, states []pki.State) ([]pki.Entry, error) {
	patterns, err := pki.ParsePatterns([]string{match}, fingerHash)
	if err != nil {
		return nil, err
	}
	entries, _, err := k.Keys.List()
	if err != nil {
		return nil, err
	}
	return pki.Pick(entries, patterns, states)
}

func (k keys) inStates(states []pki.State) (any, error) {
	entries, _, err := k.Keys.List()
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, s := range states {
		out[s.Section()] = []any{}
	}
	for _, e := range entries {
		if slices.Contains(states, e.State) {
			add(out, e)
		}
	}
	return out, nil
}

// ownKeys are the files of the master's own key, which Salt lists together with those of minions.
var ownKeys = []string{"master.pem", "master.pub"}

func (k keys) listAll(context.Context, *function.Call) (any, error) {
	out, err := k.inStates(pki.AllStates())
	if m, ok := out.(map[string]any); ok {
		m["local"] = []any{ownKeys[0], ownKeys[1]}
	}
	return out, err
}

func (k keys) list(_ context.Context, c *function.Call) (any, error) {
	if c.String("match") == "all" {
		return k.inStates(pki.AllStates())
	}
	s, ok := pki.ParseState(c.String("match"))
	if !ok {
		return nil, salt.WithHint(fmt.Errorf("%q is not a state of keys", c.String("match")), "the states are accepted, unaccepted, rejected and denied; or all")
	}
	return k.inStates([]pki.State{s})
}

func (k keys) nameMatch(_ context.Context, c *function.Call) (any, error) {
	entries, err := k.pick(c.String("match"), pki.AllStates())
	out := map[string]any{}
	for _, e := range entries {
		add(out, e)
	}
	return out, err
}

func (k keys) finger(_ context.Context, c *function.Call) (any, error) {
	hash := c.String("hash_type")
	out, err := k.describe(c, func(e pki.Entry) (string, error) { return e.Key.Fingerprint(hash) })
	if none := new(pki.NoMatchError); errors.As(err, &none) {
		out, err = map[string]any{}, nil // as in Salt: no match is not an error
	}
	if err != nil {
		return nil, err
	}
	return k.withOwn(out, c.String("match"), hash)
}

// withOwn adds the fingerprint of the master's own key, under those of its file names that match.
func (k keys) withOwn(out any, match, hash string) (any, error) {
	own := map[string]any{}
	for _, name := range ownKeys {
		if !fnmatch.Match(match, name) {
			continue
		}
		finger, err := k.MasterKey.Fingerprint(hash)
		if err != nil {
			return nil, err
		}
		own[name] = finger
	}
	if m, ok := out.(map[string]any); ok && len(own) > 0 {
		m["local"] = own
	}
	return out, nil
}

func (k keys) text(_ context.Context, c *function.Call) (any, error) {
	return k.describe(c, func(e pki.Entry) (string, error) { return string(e.Key.PEM()), nil })
}

// describe applies f to the keys that match and returns the results by state and id. If one id has
// several keys in a state, the end of the fingerprint is added to each.
func (k keys) describe(c *function.Call, f func(pki.Entry) (string, error)) (any, error) {
	entries, err := k.pick(c.String("match"), pki.AllStates())
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, e := range entries {
		text, err := f(e)
		if err != nil {
			return nil, err
		}
		section, _ := out[e.State.Section()].(map[string]any)
		if section == nil {
			section = map[string]any{}
			out[e.State.Section()] = section
		}
		label := string(e.ID)
		if section[label] != nil {
			label += "@SHA256:" + e.Key.SHA256()
		}
		section[label] = text
	}
	return out, nil
}

func (k keys) fingerMaster(_ context.Context, c *function.Call) (any, error) {
	finger, err := k.MasterKey.Fingerprint(c.String("hash_type"))
	if err != nil {
		return nil, err
	}
	return map[string]any{"local": map[string]any{"master.pub": finger}}, nil
}
