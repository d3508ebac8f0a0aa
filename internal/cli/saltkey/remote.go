package saltkey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// keys is the store of minion keys: the key directory, or a master.
type keys interface {
	List() ([]pki.Entry, []pki.Problem, error)
	Accept(pki.Entry) error
	Reject(pki.Entry) error
	Delete(pki.Entry) error
}

// remote are the keys of a master, for users who may not read the key directory. Each operation
// is a wheel function that the user must be allowed to run.
type remote struct {
	ctx  context.Context // of the one command that this is for
	conn *brine.Conn
}

// reach connects to the master, which then decides what is allowed. Without a login, or without
// a master, it returns why the files cannot be read.
func (t *tool) reach(ctx context.Context, login *client.Login) error {
	err := t.dial(ctx, login)
	if login == nil && client.NobodyListens(err) {
		return explain(t.closed)
	}
	return err
}

// dial connects to the master, and logs in if a login is given.
func (t *tool) dial(ctx context.Context, login *client.Login) error {
	conn, err := client.Connect(ctx, t.env, t.opts, t.cfg, login)
	if err != nil {
		return err
	}
	t.remote = &remote{ctx, conn}
	return nil
}

// run runs a wheel function.
func (r *remote) run(fun string, args ...any) (any, error) {
	res, err := r.conn.WheelResult(r.ctx, brine.Call(fun, args...))
	if err != nil {
		return nil, client.Error(err)
	}
	return res.Value()
}

// List returns the keys of the master. It uses key.key_str, which fails if there is no key.
func (r *remote) List() ([]pki.Entry, []pki.Problem, error) {
	ids, err := r.run("key.list_all")
	if err != nil {
		return nil, nil, err
	}
	if isEmpty(ids) {
		return nil, nil, nil
	}
	texts, err := r.run("key.key_str", "*")
	if err != nil {
		return nil, nil, err
	}
	sections, _ := texts.(map[string]any)
	var entries []pki.Entry
	for _, s := range pki.AllStates() {
		list, _ := sections[s.Section()].(map[string]any)
		for label, text := range list {
			e, err := remoteEntry(s, label, text)
			if err != nil {
				return nil, nil, err
			}
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b pki.Entry) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.State, b.State), cmp.Compare(a.Key.SHA256(), b.Key.SHA256()))
	})
	return entries, nil, nil
}

func isEmpty(sections any) bool {
	m, _ := sections.(map[string]any)
	for _, list := range m {
		if l, _ := list.([]any); len(l) > 0 {
			return false
		}
	}
	return true
}

// remoteEntry parses a key as key.key_str shows it: with the fingerprint after the id if the id
// has several.
func remoteEntry(s pki.State, label string, text any) (pki.Entry, error) {
	b, _ := text.(string)
	key, err := pki.ParsePublic([]byte(b))
	if err != nil {
		return pki.Entry{}, fmt.Errorf("key %s of the master: %w", label, err)
	}
	id, err := salt.ParseMinionID(strings.TrimSuffix(label, "@SHA256:"+key.SHA256()))
	return pki.Entry{ID: id, State: s, Key: key}, err
}

// name names exactly one key, whatever its state.
func name(e pki.Entry) string { return string(e.ID) + "@SHA256:" + e.Key.SHA256() }

// Accept implements keys.
func (r *remote) Accept(e pki.Entry) error { return r.change("key.accept", e) }

// Reject implements keys.
func (r *remote) Reject(e pki.Entry) error { return r.change("key.reject", e) }

// Delete implements keys.
func (r *remote) Delete(e pki.Entry) error { return r.change("key.delete", e) }

func (r *remote) change(fun string, e pki.Entry) error {
	_, err := r.run(fun, name(e))
	return err
}
