package saltkey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// keys is where the keys of minions are: the key directory, or behind a master.
type keys interface {
	List() ([]pki.Entry, []pki.Problem, error)
	Accept(pki.Entry) error
	Reject(pki.Entry) error
	Delete(pki.Entry) error
}

// remote are the keys of a master, which one asks for each thing as a user who may not
// read them: by its wheel functions, each of which the user must be allowed.
type remote struct {
	ctx  context.Context // of the one command that this serves
	conn *rpc.Conn
}

// reach connects to the master, whose rules then say what may be done. Without a login,
// and without a master, it tells why the files are closed.
func (t *tool) reach(ctx context.Context, login *client.Login) error {
	err := t.dial(ctx, login)
	if login == nil && client.NobodyListens(err) {
		return explain(t.closed)
	}
	return err
}

// dial logs in at the master, where a login is asked for.
func (t *tool) dial(ctx context.Context, login *client.Login) error {
	conn, err := client.Connect(ctx, t.env, t.opts, t.cfg, login)
	if err != nil {
		return err
	}
	t.remote = &remote{ctx, conn}
	return nil
}

// run runs a wheel function.
func (r *remote) run(fun salt.Function, args ...any) (any, error) {
	stream, err := r.conn.Call(protocol.OpRun, protocol.Run{Wheel: true, Command: job.Command{Function: fun, Args: args}})
	if err != nil {
		return nil, client.Error(err)
	}
	defer stream.Close()
	var start protocol.RunStart
	var result protocol.RunResult
	if err := cmp.Or(stream.Decode(r.ctx, &start), stream.Decode(r.ctx, &result)); err != nil {
		return nil, client.Error(err)
	}
	if result.Error != "" {
		return nil, client.Failed(result)
	}
	return result.Return.V, nil
}

// List returns the keys of the master: by key.key_str, which fails where there is
// none.
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

// remoteEntry reads a key as key.key_str shows it: with the fingerprint behind the
// id where the id has several.
func remoteEntry(s pki.State, label string, text any) (pki.Entry, error) {
	b, _ := text.(string)
	key, err := pki.ParsePublic([]byte(b))
	if err != nil {
		return pki.Entry{}, fmt.Errorf("key %s of the master: %w", label, err)
	}
	id, err := salt.ParseMinionID(strings.TrimSuffix(label, "@SHA256:"+key.SHA256()))
	return pki.Entry{ID: id, State: s, Key: key}, err
}

// name names one key, whatever its state.
func name(e pki.Entry) string { return string(e.ID) + "@SHA256:" + e.Key.SHA256() }

// Accept implements keys.
func (r *remote) Accept(e pki.Entry) error { return r.change("key.accept", e) }

// Reject implements keys.
func (r *remote) Reject(e pki.Entry) error { return r.change("key.reject", e) }

// Delete implements keys.
func (r *remote) Delete(e pki.Entry) error { return r.change("key.delete", e) }

func (r *remote) change(fun salt.Function, e pki.Entry) error {
	_, err := r.run(fun, name(e))
	return err
}
