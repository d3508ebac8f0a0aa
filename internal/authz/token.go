package authz

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
)

// tokens are all of them, for those who may run the runners about them.
type tokens struct {
	who           Principal
	authenticator *eauth.Authenticator
}

// Tokens are all that there are, in the hands of who.
func (l *Logins) Tokens(who Principal) runner.Tokens { return tokens{who, l.Authenticator} }

// Make makes one of the login that asks, or, for operators, of anybody whom the backend
// knows.
func (t tokens) Make(ctx context.Context, n runner.NewToken) (made eauth.Token, secret string, err error) {
	made.User, made.Backend = n.User, n.Backend
	switch g := t.who.login; {
	case g != nil && (n.User != "" && n.User != g.Name || n.Backend != "" && n.Backend != g.Backend):
		return made, "", rpc.Errorf(rpc.Denied, "%s may make tokens of %s by %s only", t.who.name, g.Name, g.Backend)
	case g != nil:
		made.User, made.Backend = g.Name, g.Backend
		secret, made.Expires, err = t.authenticator.MakeToken(ctx, g, n.Life, false)
	case !t.who.operator:
		err = rpc.Errorf(rpc.Denied, "only operators make tokens without a login").WithHint("log in: salt-run -a BACKEND auth.mk_token")
	case n.User == "" || n.Backend == "":
		err = salt.WithHint(errors.New("a token is of a user whom a backend knows: username and eauth are needed"),
			"salt-run auth.mk_token username=fred eauth=pam, or log in: salt-run -a BACKEND auth.mk_token")
	default:
		secret, made.Expires, err = t.authenticator.Issue(ctx, n.Backend, n.User, n.Life)
	}
	if err == nil {
		made.ID = eauth.TokenID(secret)
	} else if errors.Is(err, eauth.ErrLifetime) {
		err = rpc.Errorf(rpc.Denied, "%v", err)
	}
	return made, secret, err
}

func (t tokens) List(ctx context.Context) ([]eauth.Token, error) {
	return t.authenticator.List(ctx, nil)
}

func (t tokens) Delete(ctx context.Context, id string) error {
	key, err := t.authenticator.Find(ctx, id, nil)
	if err != nil {
		return err
	}
	return t.authenticator.Delete(ctx, key)
}

// ownTokens are those of the login that asks, for people who have no rule for runners
// about tokens. Whoever comes without a login has none.
type ownTokens struct {
	who           Principal
	authenticator *eauth.Authenticator
	record        func(context.Context) error
}

// OwnTokens are those of who. p permits them to be deleted, and is written down before.
func (a *Authorizer) OwnTokens(who Principal, p Permission) runner.Tokens {
	return ownTokens{who, a.Logins.Authenticator, func(ctx context.Context) error { return a.Record(ctx, p, "") }}
}

func (t ownTokens) Make(context.Context, runner.NewToken) (eauth.Token, string, error) {
	return eauth.Token{}, "", rpc.Errorf(rpc.Denied, "tokens are made by those only whose rule names auth.mk_token")
}

func (t ownTokens) List(ctx context.Context) ([]eauth.Token, error) {
	if t.who.login == nil {
		return nil, nil
	}
	return t.authenticator.List(ctx, t.who.login)
}

func (t ownTokens) Delete(ctx context.Context, id string) error {
	if t.who.login == nil {
		return rpc.Errorf(rpc.Denied, "tokens are of logins, and this is none").WithHint("log in: salt-run -a BACKEND auth.del_token ID")
	}
	key, err := t.authenticator.Find(ctx, id, t.who.login)
	if err == nil {
		err = t.record(ctx)
	}
	if err != nil {
		return err
	}
	return t.authenticator.Delete(ctx, key)
}
