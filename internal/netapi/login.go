package netapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/brinebus/brine/client"
)

// welcome answers GET / with the clients that exist.
func welcome(r *request) error {
	if err := r.acceptable(); err != nil {
		return err
	}
	list := []any{}
	for _, name := range clients {
		if r.s.enabled(name) {
			list = append(list, name)
		}
	}
	return r.send(http.StatusOK, map[string]any{"return": "Welcome", "clients": list})
}

func (s *Server) enabled(name string) bool { return slices.Contains(s.opts.Clients, name) }

func pleaseLogIn(r *request) error {
	if err := r.acceptable(); err != nil {
		return err
	}
	return r.send(http.StatusOK, map[string]any{"status": nil, "return": "Please log in"})
}

// credentials reads a login from the first map of a body.
func (r *request) credentials() (map[string]any, login) {
	m, ok := r.body.(map[string]any)
	if list, isList := r.body.([]any); isList && len(list) > 0 {
		m, ok = list[0].(map[string]any)
	}
	if !ok {
		return nil, login{}
	}
	return m, login{backend: textOf(m["eauth"]), user: textOf(m["username"]), password: textOf(m["password"])}
}

// logInHere logs in and makes a session.
func logInHere(r *request) error {
	m, who := r.credentials()
	if m == nil {
		return problem(http.StatusBadRequest, "A login needs username, password and eauth.")
	}
	if who.backend == "" || who.user == "" || who.password == "" {
		return problem(http.StatusUnauthorized, noAccess)
	}
	life, err := number(m, "token_expire")
	if err != nil {
		return err
	}
	if err := r.s.mayCome(who.user, r); err != nil {
		return err
	}
	form := r.acceptable()
	l := client.Login{Backend: who.backend, User: who.user, Password: who.password, MakeToken: form == nil, Expire: span(life), ExpireIfAllowed: true}
	in, err := r.logIn(r.Context(), l)
	if err != nil {
		return refused(err, noAccess)
	}
	if form != nil {
		return form
	}
	session, err := r.s.sessions.open(in)
	if err != nil {
		return err
	}
	r.session = session
	r.w.Header().Set(tokenHeader, session.id)
	r.setCookie(session.id, int(time.Until(session.end).Seconds()))
	return r.send(http.StatusOK, map[string]any{"return": []any{map[string]any{
		"token": session.id, "expire": seconds(session.end), "start": seconds(session.start), "user": session.user, "eauth": session.backend, "perms": perms(session.perms),
	}}})
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// perms returns the rules as a list, or as an empty map if there are none, as clients expect.
func perms(rules []any) any {
	if len(rules) > 0 {
		return rules
	}
	return map[string]any{}
}

// own is a connection for one request.
type own struct {
	conn  *client.Conn
	leave func()
}

func (o *own) close() {
	o.conn.Close()
	o.leave()
}

// logOut ends the session, and revokes its token at the master.
func logOut(r *request) error {
	if err := r.acceptable(); err != nil {
		return err
	}
	if err := r.revoke(r.Context()); err != nil {
		r.s.log.Warn("token not revoked", "user", r.session.user, "err", err)
	}
	r.s.pool.drop(r.session.token)
	r.s.sessions.drop(r.session.id)
	r.setCookie("", -1)
	return r.send(http.StatusOK, map[string]any{"return": "Your token has been cleared"})
}

// makeToken makes a token of the master. In Salt this is a runner, and it needs the same
// permission.
func makeToken(r *request) error {
	if err := r.acceptable(); err != nil {
		return err
	}
	m, who := r.credentials()
	if m == nil || who.backend == "" || who.user == "" || who.password == "" {
		return problem(http.StatusBadRequest, `Require "username", "password", and "eauth" params`)
	}
	if !r.s.enabled("runner") {
		return problem(http.StatusBadRequest, "Client disabled: 'runner'. Add to 'netapi_enable_clients' master config option to enable.")
	}
	life, err := number(m, "token_expire")
	if err != nil {
		return err
	}
	if err := r.s.mayCome(who.user, r); err != nil {
		return err
	}
	refusal := "Authentication failure of type \"eauth\" occurred for user " + shorten(who.user) + "."
	in, err := r.tokenFor(r.Context(), who, span(life))
	if err != nil {
		return refused(err, refusal)
	}
	return r.send(http.StatusOK, []any{map[string]any{
		"start": seconds(in.Issued), "expire": seconds(in.Expires), "name": in.User, "eauth": in.Backend, "token": in.Token,
	}})
}

// runLow runs chunks, each with the login that it contains.
func runLow(r *request) error {
	if r.URL.Query().Has("follow") {
		return followRun(r)
	}
	if err := r.acceptable(); err != nil {
		return err
	}
	maps, err := lowstates(r.body)
	if err != nil {
		return err
	}
	logins := &logins{r: r, of: map[login]*caller{}}
	defer logins.close()
	if !byTokens(maps) {
		if err := logins.reach(); err != nil {
			return err
		}
	}
	chunks, err := r.chunks(maps)
	if err != nil {
		return err
	}
	results, err := r.all(r.Context(), chunks, logins.as)
	if err != nil {
		return err
	}
	return r.send(http.StatusOK, map[string]any{"return": results})
}

// byTokens reports whether all chunks contain tokens, for which there are pooled connections.
func byTokens(maps []map[string]any) bool {
	return !slices.ContainsFunc(maps, func(m map[string]any) bool { return textOf(m["token"]) == "" })
}

// logins are the logins of one request to run.
type logins struct {
	r     *request
	of    map[login]*caller
	spare *own // a connection without a login yet
	owned []*own
	leave []func()
}

// reach connects to the master.
func (l *logins) reach() (err error) {
	l.spare, err = l.r.dial(l.r.Context(), l.r.s.limits.login)
	return err
}

func (l *logins) close() {
	if l.spare != nil {
		l.spare.close()
	}
	for _, c := range l.of {
		if c.pooled != nil {
			c.close()
		}
	}
	for _, o := range l.owned {
		o.close()
	}
	for _, leave := range l.leave {
		leave()
	}
}

// as logs in with the login of a chunk.
func (l *logins) as(c chunk) (*caller, error) {
	who := c.login
	if who.token != "" {
		who = login{token: who.token}
	}
	if have := l.of[who]; have != nil {
		return have, nil
	}
	var made *caller
	var err error
	switch {
	case who.token != "":
		made, err = l.byToken(who)
	case who.backend != "" && who.user != "":
		made, err = l.byPassword(who, c)
	default:
		return nil, problem(http.StatusUnauthorized, noCredentials)
	}
	if err != nil {
		return nil, err
	}
	if err := l.r.s.mayCome(made.user, l.r); err != nil {
		if made.pooled != nil { // other logins are closed with the request
			made.close()
		}
		return nil, err
	}
	l.of[who] = made
	leave, err := l.r.s.limits.work(made.name())
	if err == nil {
		l.leave = append(l.leave, leave)
	}
	return made, err
}

func (l *logins) byToken(who login) (*caller, error) {
	if !isToken(who.token) || l.r.s.sessions.find(who.token) != nil {
		return nil, problem(http.StatusUnauthorized, notAuthentic)
	}
	k, err := l.r.s.pool.try(l.r.Context(), who, l.r.address, l.r.s.limits.login)
	if err != nil {
		return nil, refused(err, notAuthentic)
	}
	who.backend = k.in.Backend
	return &caller{conn: k.conn, user: k.in.User, kind: "token", pooled: k, who: who}, nil
}

func (l *logins) byPassword(who login, c chunk) (*caller, error) {
	if l.spare == nil {
		if err := l.reach(); err != nil {
			return nil, err
		}
	}
	o := l.spare
	l.spare, l.owned = nil, append(l.owned, o)
	ctx, cancel := context.WithTimeout(l.r.Context(), loginTime)
	defer cancel()
	in, err := logIn(ctx, o.conn, client.Login{Backend: who.backend, User: who.user, Password: who.password}, l.r.address)
	if err != nil {
		text := notAuthentic
		if c.run != nil {
			text = "Authentication failure of type \"eauth\" occurred for user " + shorten(who.user) + "."
		}
		return nil, refused(err, text)
	}
	made := &caller{conn: o.conn, user: in.User, kind: "eauth", who: who}
	leave, err := l.r.s.pool.own(made.name())
	if err != nil {
		return nil, err
	}
	o.leave() // it is no login any more: others can log in while its jobs run
	o.leave = leave
	return made, nil
}
