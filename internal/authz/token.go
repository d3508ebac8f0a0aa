package authz

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
)

// MakeToken makes a token for the runner auth.mk_token: of the login that asks,
// or, for operators, of anybody whom the backend knows.
func (l *Logins) MakeToken(ctx context.Context, who Principal, t runner.NewToken) (runner.Token, error) {
	made := runner.Token{User: t.User, Backend: t.Backend}
	var err error
	switch g := who.login; {
	case g != nil && (t.User != "" && t.User != g.Name || t.Backend != "" && t.Backend != g.Backend):
		return made, rpc.Errorf(rpc.Denied, "%s may make tokens of %s by %s only", who.name, g.Name, g.Backend)
	case g != nil:
		made.User, made.Backend = g.Name, g.Backend
		made.Token, made.Expires, err = l.Gate.MakeToken(ctx, g, t.Life, false)
	case !who.operator:
		err = rpc.Errorf(rpc.Denied, "only operators make tokens without a login").WithHint("log in: salt-run -a BACKEND auth.mk_token")
	case t.User == "" || t.Backend == "":
		err = salt.WithHint(errors.New("a token is of a user whom a backend knows: username and eauth are needed"),
			"salt-run auth.mk_token username=fred eauth=pam, or log in: salt-run -a BACKEND auth.mk_token")
	default:
		made.Token, made.Expires, err = l.Gate.Issue(ctx, t.Backend, t.User, t.Life)
	}
	if err == nil {
		made.ID = eauth.TokenID(made.Token)
	} else if errors.Is(err, eauth.ErrLifetime) {
		err = rpc.Errorf(rpc.Denied, "%v", err)
	}
	return made, err
}

// DeleteToken forgets a token: of a login, or anybody's for nil. record, if there is one,
// comes before.
func (l *Logins) DeleteToken(ctx context.Context, id string, of *eauth.Grant, record func() error) error {
	key, err := l.Gate.Find(ctx, id, of)
	if err == nil && record != nil {
		err = record()
	}
	if err != nil {
		return err
	}
	return l.Gate.Delete(ctx, key)
}

// ListTokens lists them for the runner auth.list_tokens: those of a login, or all for nil.
func (l *Logins) ListTokens(ctx context.Context, of *eauth.Grant) ([]runner.Token, error) {
	list, err := l.Gate.List(ctx, of)
	out := make([]runner.Token, len(list))
	for i, t := range list {
		out[i] = runner.Token{ID: t.ID, User: t.User, Backend: t.Backend, Groups: t.Groups, Issued: t.Issued, Expires: t.Expires, KeepsRules: t.KeepsRules}
	}
	return out, err
}
