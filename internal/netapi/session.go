package netapi

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/client"
)

// session stands for a token of the master, which clients never see. It ends with the token:
// every request to the master uses it.
type session struct {
	id            string // 40 hexadecimal digits
	token         string
	user, backend string
	start, end    time.Time
	perms         []any
}

// login is a login by token, or by name and password.
type login struct {
	token                   string
	backend, user, password string
}

// name is the login for limits.
func (l login) name() string { return l.backend + ":" + l.user }

func (s *session) login() login { return login{token: s.token, backend: s.backend, user: s.user} }

// sessions are the sessions of this process, by id. After a restart of the program users log in
// again.
type sessions struct {
	mu   sync.Mutex
	byID map[string]*session
}

// Limits of sessions.
const (
	// maxSessions is more than the tokens that the master keeps.
	maxSessions = 100_000
	// staleTime is how long an expired session is remembered, so that the client is told why it
	// is refused. The master refuses it anyway.
	staleTime = 10 * time.Minute
	idBytes   = 20
)

func newSessions() *sessions { return &sessions{byID: map[string]*session{}} }

// open makes a session for a login that the master has accepted.
func (l *sessions) open(in client.Session) (*session, error) {
	b := make([]byte, idBytes)
	rand.Read(b) //nolint:errcheck // it never fails
	s := &session{id: hex.EncodeToString(b), token: in.Token, user: in.User, backend: in.Backend, start: in.Issued, end: in.Expires, perms: in.Rules}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byID) >= maxSessions {
		return nil, problem(http.StatusServiceUnavailable, "There are too many sessions.")
	}
	l.byID[s.id] = s
	return s, nil
}

func (l *sessions) find(id string) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[id]
}

func (l *sessions) drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID, id)
}

func (l *sessions) sweep(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range l.byID {
		if now.After(s.end.Add(staleTime)) {
			delete(l.byID, id)
		}
	}
}

func (l *sessions) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byID)
}

// The names of the header and the cookie of a session.
const (
	tokenHeader = "X-Auth-Token"
	cookieName  = "session_id"
)

// shown returns the session id that a request presents, by header or cookie, "" for none. The
// header has precedence even if it is wrong.
func (r *request) shown() (id string, byCookie bool) {
	if id := r.Header.Get(tokenHeader); id != "" {
		return id, false
	}
	if c, err := r.Cookie(cookieName); err == nil {
		return c.Value, true
	}
	return "", false
}

// authenticate finds the session of a request if its route needs one.
func (r *request) authenticate() error {
	id, byCookie := r.shown()
	if err := r.sameSite(byCookie && id != ""); err != nil {
		return err
	}
	if !r.route.guards(r.Method) {
		return nil
	}
	if id == "" && r.route.tokens {
		return r.byQuery()
	}
	if r.session = r.s.sessions.find(id); r.session == nil {
		return problem(http.StatusUnauthorized, "%s", r.route.unknown)
	}
	if r.route.streams && time.Now().After(r.session.end) {
		return problem(http.StatusUnauthorized, noPermission)
	}
	if err := r.s.mayCome(r.session.user, r); err != nil {
		return err
	}
	r.w.Header().Set("Cache-Control", "private")
	return nil
}

// byQuery takes the session, or a token of the master, from the query of an event stream: a
// browser's EventSource cannot send headers.
func (r *request) byQuery() error {
	q := r.URL.Query()
	word := q.Get("token")
	if word == "" {
		word = q.Get("salt_token")
	}
	if word == "" {
		return problem(http.StatusUnauthorized, noPermission)
	}
	if r.session = r.s.sessions.find(word); r.session == nil {
		return r.byToken(word)
	}
	if time.Now().After(r.session.end) {
		return problem(http.StatusUnauthorized, noPermission)
	}
	return r.s.mayCome(r.session.user, r)
}

// byToken makes a session for this request from a token of the master, if the master accepts
// it.
func (r *request) byToken(token string) error {
	if !isToken(token) {
		return problem(http.StatusUnauthorized, noPermission)
	}
	k, err := r.s.pool.try(r.Context(), login{token: token}, r.address, r.s.limits.login)
	if err != nil {
		return refused(err, noPermission)
	}
	defer k.release()
	in := k.in
	r.session = &session{id: "", token: token, user: in.User, backend: in.Backend, start: in.Issued, end: in.Expires}
	return r.s.mayCome(in.User, r)
}

// isToken reports whether a text can be a token of the master.
func isToken(s string) bool {
	return len(s) >= 32 && len(s) <= 256 && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// setCookie sends the session's cookie to a browser.
func (r *request) setCookie(id string, age int) {
	http.SetCookie(r.w, &http.Cookie{
		Name: cookieName, Value: id, Path: "/", MaxAge: age, Expires: time.Now().Add(time.Duration(age) * time.Second),
		HttpOnly: true, Secure: r.s.opts.TLS, SameSite: http.SameSiteStrictMode,
	})
}
