package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
)

// Tokens gives access to the external_auth tokens that the user of the runner may see.
type Tokens interface {
	Make(ctx context.Context, t NewToken) (made eauth.Token, secret string, err error)
	List(ctx context.Context) ([]eauth.Token, error)
	Delete(ctx context.Context, id string) error
}

// NewToken is a request for a token. User and Backend are empty for a token of the user's own
// login.
type NewToken struct {
	User, Backend string
	Life          time.Duration // 0 is the usual one
}

// makeToken is the only function that returns a secret. deleteToken may get a secret from users, in
// tokenParam.
const (
	makeToken   = "auth.mk_token"
	deleteToken = "auth.del_token"
	tokenParam  = "token"
)

// authModule manages the tokens of external_auth.
func authModule(h *Host) *function.Module {
	t := tokens{h.Tokens}
	return &function.Module{Name: "auth", Doc: "Tokens of external_auth.", Functions: []function.Function{
		{Name: "del_token", Class: function.Changes, Own: true, Doc: "Revoke a token, named by the beginning of its id, and the tokens that were made with it.", Example: "salt-run auth.del_token 5f3a0c11",
			Params: []function.Param{{Name: tokenParam, Kind: function.String, Required: true}}, Run: t.forget},
		{Name: "list_tokens", Class: function.Shared, Own: true, Doc: "Return the tokens that have not expired, without their secrets: whose they are, since when, until when.", Example: "salt-run auth.list_tokens", Run: t.list},
		{Name: "mk_token", Class: function.Changes, Doc: "Make a token: of the user who is logged in by -a, or, for root, of any user of a backend. token_expire is its lifetime in seconds.",
			Example: "salt-run -a pam auth.mk_token\nsalt-run auth.mk_token username=fred eauth=pam token_expire=600",
			Params: []function.Param{
				{Name: "username", Kind: function.String}, {Name: "eauth", Kind: function.String}, {Name: "token_expire", Kind: function.Float},
			}, Run: t.make},
	}}
}

// CheckSecrets refuses a password, or a token, among the arguments of a runner: the journal would
// store it.
func CheckSecrets(c job.Command) error {
	if _, given := c.Kwargs["password"]; given && c.Function == makeToken {
		return salt.WithHint(errors.New("a password is not an argument: everybody would see it in the list of processes"),
			"log in instead: salt-run -a BACKEND --username USER auth.mk_token")
	}
	if c.Function != deleteToken || !slices.ContainsFunc(append(slices.Collect(maps.Values(c.Kwargs)), c.Args...), isToken) {
		return nil
	}
	return salt.WithHint(errors.New("a token is not an argument: everybody would see it in the list of processes"),
		"name it by the beginning of its id, which 'salt-run auth.list_tokens' shows: it is that of the token's SHA-256")
}

// isToken reports whether an argument has the form of a whole token. An id of that length is
// refused too.
func isToken(arg any) bool {
	text, ok := arg.(string)
	b, err := hex.DecodeString(strings.TrimSpace(text))
	return ok && err == nil && len(b) == sha256.Size
}

// Shown returns the part of a runner's return that others may see.
func Shown(f salt.Function, ret any) any {
	made, ok := ret.(map[string]any)
	if f != makeToken || !ok {
		return ret
	}
	shown := maps.Clone(made)
	delete(shown, "token")
	return shown
}

type tokens struct{ Tokens }

func (t tokens) make(ctx context.Context, c *function.Call) (any, error) {
	made, secret, err := t.Make(ctx, NewToken{
		User: c.String("username"), Backend: c.String("eauth"), Life: time.Duration(c.Float("token_expire") * float64(time.Second)),
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"id": made.ID, "token": secret, "name": made.User, "eauth": made.Backend, "expire": moment(made.Expires)}, nil
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func (t tokens) list(ctx context.Context, _ *function.Call) (any, error) {
	list, err := t.List(ctx)
	out := []any{}
	for _, k := range list {
		groups := []any{}
		for _, g := range k.Groups {
			groups = append(groups, g)
		}
		out = append(out, map[string]any{
			"id": k.ID, "name": k.User, "eauth": k.Backend, "groups": groups, "start": moment(k.Issued), "expire": moment(k.Expires), "keeps_rules": k.KeepsRules,
		})
	}
	return out, err
}

func (t tokens) forget(ctx context.Context, c *function.Call) (any, error) {
	err := t.Delete(ctx, c.String(tokenParam))
	return err == nil, err
}
