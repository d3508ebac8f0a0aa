package chaos

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// userCount is how many users log in at the same time.
	userCount = 2
	// keptTokens is how many tokens a user has, over the rounds. The oldest is deleted for a new
	// one: a master takes few refused tokens in a row, and each deleted one is shown to all of them.
	keptTokens = 3
	// revokeTime is how long a deleted token may still be taken somewhere.
	revokeTime = time.Second
)

const password = "grüner-hering"

// user is a user of external_auth who logs in again and again.
type user struct {
	name   string
	made   int
	tokens []*token // the oldest first
	gone   []*token // that were deleted, the latest last
}

// token is one that a user was given.
type token struct {
	id, home string    // what operators call it, and the home directory with the file
	asked    bool      // it was asked that it be deleted
	deleted  time.Time // when that was acknowledged
}

// use is what a master said to a token, if it could say anything.
type use struct {
	at                string
	begun             time.Time
	accepted, refused bool
}

// untrue says what is wrong with a use of the token, or nothing.
func (t *token) untrue(u use) string {
	switch {
	case u.refused && !t.asked:
		return fmt.Sprintf("token %s is refused at %s", t.id, u.at)
	case u.accepted && !t.deleted.IsZero() && u.begun.Sub(t.deleted) >= revokeTime:
		return fmt.Sprintf("token %s was deleted, and %s takes it %s later", t.id, u.at, u.begun.Sub(t.deleted).Round(time.Millisecond))
	}
	return ""
}

// unlisted compares tokens with the ids that a master lists once all daemons are there.
func unlisted(all []*token, at string, ids []string) []string {
	var out []string
	for _, t := range all {
		there := slices.Contains(ids, t.id)
		switch {
		case !there && !t.asked:
			out = append(out, fmt.Sprintf("token %s is not known at %s", t.id, at))
		case there && !t.deleted.IsZero():
			out = append(out, fmt.Sprintf("token %s was deleted, and %s lists it", t.id, at))
		}
	}
	return out
}

// makeUsers makes the users, whom all masters know from one file, and returns the settings.
func (w *world) makeUsers() string {
	var entries strings.Builder
	settings := "external_auth:\n  file:\n    ^filename: " + w.dir + "/users\n    ^hashtype: plaintext\n"
	for i := range userCount {
		u := &user{name: fmt.Sprintf("user%d", i+1)}
		w.users = append(w.users, u)
		fmt.Fprintf(&entries, "%s:%s\n", u.name, password)
		settings += fmt.Sprintf("    %s: [test.ping]\n", u.name)
	}
	w.must(errors.Join(os.WriteFile(w.dir+"/users", []byte(entries.String()), 0o600), os.WriteFile(w.passwordFile(), []byte(password+"\n"), 0o600)))
	return settings
}

func (w *world) passwordFile() string { return filepath.Join(w.dir, "password") }

// after is the next master of the list.
func (w *world) after(m *machine) *machine {
	return w.masters[(slices.Index(w.masters, m)+1)%len(w.masters)]
}

// login makes a token at one master and uses it at the next. What is too much is deleted.
func (r *round) login(u *user) {
	at := r.w.next()
	if t := r.makeToken(u, at); t != nil {
		r.use(t, r.w.after(at))
	}
	if len(u.tokens) > keptTokens {
		r.revoke(u, r.w.next())
	}
	<-time.After(10 * look)
}

// makeToken logs in by password. A token that the command has kept was acknowledged, whatever
// became of the rest of the command.
func (r *round) makeToken(u *user, at *machine) *token {
	u.made++
	home := filepath.Join(r.w.dir, fmt.Sprintf("home-%s-%d", u.name, u.made))
	if !r.check(os.Mkdir(home, 0o700)) {
		return nil
	}
	res := at.toolOf(home, "", "salt", "-T", "-a", "file", "--username", u.name, "--password-file", r.w.passwordFile(), "-L", r.w.targets(), "--preview-target")
	if res.hung {
		r.wrong(&r.counts.hung, "a login of %s hangs at %s: %s", u.name, at.name, res.err)
	}
	b, err := os.ReadFile(filepath.Join(home, ".salt_token"))
	if err != nil {
		r.w.note("no login of %s at %s: exit code %d: %s", u.name, at.name, res.code, res.err)
		if res.code == 0 || res.code == 77 {
			r.wrong(&r.counts.wrongTokens, "the login of %s at %s ends with %d and without a token: %s", u.name, at.name, res.code, res.err)
		}
		<-time.After(look)
		return nil
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(string(b))))
	t := &token{id: hex.EncodeToString(sum[:8]), home: home}
	r.w.note("token %s of %s at %s", t.id, u.name, at.name)
	u.tokens = append(u.tokens, t)
	r.Lock()
	defer r.Unlock()
	r.counts.logins++
	return t
}

// use starts a job with a token, and takes down a wrong answer.
func (r *round) use(t *token, at *machine) result {
	u := use{at: at.name, begun: time.Now()}
	res := at.toolOf(t.home, "", "salt", "-T", "-L", r.w.targets(), "--show-jid", "-t", "3", "--out", "quiet", "test.ping")
	u.accepted, u.refused = jid.MatchString(res.err), res.code == 77
	r.w.note("token %s at %s: exit code %d: %s", t.id, at.name, res.code, res.err)
	if res.hung {
		r.wrong(&r.counts.hung, "salt with a token hangs at %s: %s", at.name, res.err)
	}
	if s := t.untrue(u); s != "" {
		r.wrong(&r.counts.wrongTokens, "%s: exit code %d: %s", s, res.code, res.err)
	}
	return res
}

// revoke deletes the oldest token of a user. When that is acknowledged, no master may take it any
// more.
func (r *round) revoke(u *user, at *machine) {
	t := u.tokens[0]
	res := at.tool("", "salt-run", "auth.del_token", t.id)
	r.w.note("delete token %s at %s: exit code %d: %s%s", t.id, at.name, res.code, res.out, res.err)
	if res.hung {
		r.wrong(&r.counts.hung, "salt-run auth.del_token hangs at %s: %s", at.name, res.err)
	}
	if gone := strings.Contains(res.err, "no token has an id"); gone && !t.asked {
		r.wrong(&r.counts.wrongTokens, "token %s is not known at %s: %s", t.id, at.name, res.err)
	} else if !gone && res.code != 0 {
		t.asked = true // it may have been deleted, which the next attempt shows
		return
	}
	t.asked, t.deleted = true, time.Now()
	u.tokens, u.gone = u.tokens[1:], append(u.gone, t)
	r.Lock()
	r.counts.revoked++
	r.Unlock()
	<-time.After(revokeTime)
	var using sync.WaitGroup
	for _, m := range r.w.masters {
		using.Go(func() { r.use(t, m) })
	}
	using.Wait()
}

// judgeTokens looks whether all masters know the tokens that are kept, and those only, and run
// jobs with them.
func (r *round) judgeTokens() {
	var all []*token
	for _, u := range r.w.users {
		all = append(append(all, u.tokens...), u.gone...)
	}
	for _, m := range r.w.masters {
		ids, err := m.tokenIDs()
		if err != nil {
			r.wrong(&r.counts.wrongTokens, "%v", err)
			continue
		}
		for _, s := range unlisted(all, m.name, ids) {
			r.wrong(&r.counts.wrongTokens, "%s", s)
		}
	}
	for _, u := range r.w.users {
		for _, t := range u.tokens {
			if !t.asked {
				r.works(t, r.w.next())
			}
		}
		if len(u.gone) > 0 {
			r.use(u.gone[len(u.gone)-1], r.w.next())
		}
	}
}

// lastTokens is how many deleted tokens of each user are tried at the end.
const lastTokens = 10

// judgeDeletedTokens looks whether tokens that were deleted some rounds ago are still refused.
func (r *round) judgeDeletedTokens() {
	for _, u := range r.w.users {
		for _, t := range u.gone[max(0, len(u.gone)-lastTokens):] {
			r.use(t, r.w.next())
		}
	}
}

// works waits until a job with a token has run on all minions.
func (r *round) works(t *token, at *machine) {
	var res result
	for end := time.Now().Add(wordTime); time.Now().Before(end); time.Sleep(10 * look) {
		if res = r.use(t, at); res.code == 0 || res.code == 77 {
			return
		}
	}
	r.wrong(&r.counts.wrongTokens, "no job runs with token %s at %s: exit code %d: %s", t.id, at.name, res.code, res.err)
}

// tokenIDs are the ids of the tokens that a master lists.
func (m *machine) tokenIDs() (ids []string, err error) {
	var res result
	for end := time.Now().Add(wordTime); time.Now().Before(end); time.Sleep(10 * look) {
		var list []struct{ ID string }
		res = m.tool("", "salt-run", "auth.list_tokens", "--out", "json")
		if err = json.Unmarshal([]byte(res.out), &list); res.code != 0 || err != nil {
			continue
		}
		for _, t := range list {
			ids = append(ids, t.ID)
		}
		return ids, nil
	}
	return nil, fmt.Errorf("list tokens at %s: exit code %d: %s%s", m.name, res.code, res.out, res.err)
}
