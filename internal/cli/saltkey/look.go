package saltkey

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// entries returns all keys, and warns about files that are not keys.
func (t *tool) entries() (keys, []pki.Entry, error) {
	store, err := t.openKeys()
	if err != nil {
		return nil, nil, err
	}
	entries, problems, err := store.List()
	if err != nil {
		return nil, nil, explain(err)
	}
	for _, p := range problems {
		t.env.Warn(explainFile(p))
	}
	return store, entries, nil
}

// explainFile adds what can be done about a key that cannot be rejected or deleted, since its file cannot be read.
func explainFile(p pki.Problem) error {
	if !p.Unread() || p.State != pki.Accepted {
		return p.Err
	}
	return salt.WithHint(p.Err, "to refuse this minion although its key cannot be read, remove the file: rm "+p.Path)
}

// list prints the ids by state, with -v also details of the keys.
func list(_ context.Context, t *tool) error {
	states := pki.AllStates()
	if arg := t.opts.String("list"); t.opts.IsSet("list") && arg != "all" {
		s, err := parseState(arg)
		if err != nil {
			return err
		}
		states = []pki.State{s}
	}
	_, entries, err := t.entries()
	if err != nil {
		return err
	}
	if severalKeys(entries) && t.forPeople() && !t.opts.Bool("verbose") && !t.quiet() {
		t.env.Warn(errors.New("some ids have several keys: salt-key -L -v tells them apart"))
	}
	entries = slices.DeleteFunc(entries, func(e pki.Entry) bool { return !slices.Contains(states, e.State) })
	data := t.idLists(entries, states)
	if t.opts.Bool("verbose") {
		for name, section := range t.details(entries, t.describe) {
			data[name] = section
		}
	}
	return t.show(data)
}

func parseState(arg string) (pki.State, error) {
	s, ok := pki.ParseState(arg)
	if !ok {
		return s, cli.Usagef("'%s' is not a valid argument to '--list'", arg)
	}
	return s, nil
}

// describe is what -v shows of a key: fields for programs, one line for people.
func (t *tool) describe(e pki.Entry) any {
	if e.Modified.IsZero() { // a master does not report it
		if t.forPeople() {
			return t.fingerprint(e.Key)
		}
		return map[string]any{"fingerprint": t.bareFingerprint(e.Key), "type": string(e.Key.Type())}
	}
	if t.forPeople() {
		return t.fingerprint(e.Key) + "  " + e.Modified.Format(time.DateTime)
	}
	return map[string]any{
		"fingerprint": t.bareFingerprint(e.Key),
		"modified":    e.Modified.UTC().Format(time.RFC3339),
		"type":        string(e.Key.Type()),
	}
}

// finger prints fingerprints of the named keys, or of all. The master's own keys can be named
// by their files.
func finger(_ context.Context, t *tool) error {
	return t.look("finger", t.ownKeys(), func(e pki.Entry) any { return t.bareFingerprint(e.Key) })
}

// printKeys prints the named keys as PEM, or all.
func printKeys(_ context.Context, t *tool) error {
	return t.look("print", nil, func(e pki.Entry) any { return string(e.Key.PEM()) })
}

// look prints what describe returns for own and the minions' keys: for those that the option
// names or, if it has no value, for all.
func (t *tool) look(option string, own []pki.Entry, describe func(pki.Entry) any) error {
	patterns, err := pki.ParsePatterns(t.opts.StringSlice(option), t.hash)
	if err != nil {
		return cli.Fail(cli.Usage, err)
	}
	_, entries, err := t.entries()
	if err != nil {
		return err
	}
	entries = append(own, entries...)
	if t.opts.IsSet(option) {
		if entries, err = pki.Pick(entries, patterns, append(pki.AllStates(), local)); err != nil {
			return err
		}
	}
	return t.show(t.details(entries, describe))
}

// ownKeys returns the master's keys that exist, under the names of their files.
//
// For the private key, finger shows the fingerprint of its public key, so the two lines are
// equal if the files belong together. Salt hashes the secret there.
func (t *tool) ownKeys() []pki.Entry {
	var own []pki.Entry
	if t.remote != nil {
		return nil // only the master has them
	}
	for _, name := range []string{"master.pem", "master.pub"} {
		file := filepath.Join(t.cfg.PKIDir, name)
		key, err := ownKey(file)
		switch {
		case err == nil:
			own = append(own, pki.Entry{ID: salt.MinionID(name), State: local, Key: key, Path: file})
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			t.env.Warn(err) // without permission, a later error says more
		}
	}
	return own
}

func ownKey(file string) (pki.PublicKey, error) {
	if filepath.Ext(file) == ".pub" {
		return pki.LoadPublic(file)
	}
	key, err := pki.LoadPrivate(file)
	if err != nil {
		return pki.PublicKey{}, err
	}
	return key.Public(), nil
}
