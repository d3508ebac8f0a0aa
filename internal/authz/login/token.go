package login

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
)

// Holder is the principal that manages tokens.
type Holder interface {
	Name() string
	Operator() bool
	Login() *Session // nil for none
}

// Tokens returns all tokens, to be managed by who.
func (l *Logins) Tokens(who Holder) runner.Tokens { return tokens{who, l.Authenticator} }

// OwnTokens returns those of the login of who. record is called before one is deleted; its error
// prevents that.
func (l *Logins) OwnTokens(who Holder, record func(context.Context) error) runner.Tokens {
	return ownTokens{who, l.Authenticator, record}
}

// tokens are all tokens, for principals who may run the runners about them.
type tokens struct {
	who           Holder
	authenticator *eauth.Authenticator
}

// Make makes a token for the login of the request or, for operators, for any user known to the
// backend.
func (t tokens) Make(ctx context.Context, n runner.NewToken) (made eauth.Token, secret string, err error) {
	made.User, made.Backend = n.User, n.Backend
	switch g := t.who.Login(); {
	case g != nil && (n.User != "" && n.User != g.Name || n.Backend != "" && n.Backend != g.Backend):
		return made, "", rpc.Errorf(rpc.Denied, "%s may make tokens of %s by %s only", t.who.Name(), g.Name, g.Backend)
	case g != nil:
		made.User, made.Backend = g.Name, g.Backend
		secret, made.Expires, err = t.authenticator.MakeToken(ctx, g.Grant, n.Life, false)
	case !t.who.Operator():
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

// ownTokens are those of the principal's login, for users without a rule for runners about
// tokens. Without a login there are none.
type ownTokens struct {
	who           Holder
	authenticator *eauth.Authenticator
	record        func(context.Context) error
}

func (t ownTokens) Make(context.Context, runner.NewToken) (eauth.Token, string, error) {
	return eauth.Token{}, "", rpc.Errorf(rpc.Denied, "only users whose rule names auth.mk_token make tokens")
}

func (t ownTokens) List(ctx context.Context) ([]eauth.Token, error) {
	if t.who.Login() == nil {
		return nil, nil
	}
	return t.authenticator.List(ctx, t.who.Login().Grant)
}

func (t ownTokens) Delete(ctx context.Context, id string) error {
	if t.who.Login() == nil {
		return rpc.Errorf(rpc.Denied, "tokens are for logins, and this connection has none").WithHint("log in: salt-run -a BACKEND auth.del_token ID")
	}
	key, err := t.authenticator.Find(ctx, id, t.who.Login().Grant)
	if err == nil {
		err = t.record(ctx)
	}
	if err != nil {
		return err
	}
	return t.authenticator.Delete(ctx, key)
}
