package accord

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
)

// tokenPrefix is the prefix of the names of tokens; the SHA-256 under which it is stored
// follows.
const tokenPrefix = "token "

func tokenOf(key string) (id string, ok bool) {
	id, ok = strings.CutPrefix(key, tokenPrefix)
	_, err := hex.DecodeString(id)
	return id, ok && err == nil && isToken(id)
}

// isToken distinguishes a token from other entries of the same store.
func isToken(id string) bool { return len(id) == hex.EncodedLen(sha256.Size) }

// shownOfToken is how much of that is logged, which is how operators name a token.
const shownOfToken = 16

// TokenStore stores tokens: a table of the journal.
type TokenStore interface {
	Keep(ctx context.Context, key string, value []byte) error
	Put(ctx context.Context, key string, value []byte) error
	Get(ctx context.Context, key string) ([]byte, error)
	Delete(ctx context.Context, key string) error
	DeleteUntil(ctx context.Context, key string, until time.Time) error
	Each(ctx context.Context, f func(key string, value []byte)) error
}

// Tokens is the store of tokens of a master that agrees on them with another one.
type Tokens struct {
	TokenStore
	of *Follower
	// Foreign changes a token of the other master so that it allows no more here than a token
	// of this master would.
	Foreign func(value []byte) ([]byte, error)
}

// Tokens wraps a store so that both masters agree on its tokens. It is called before Run.
func (l *Follower) Tokens(s TokenStore) *Tokens {
	l.tokens = &Tokens{TokenStore: s, of: l}
	return l.tokens
}

// Keep stores a token, and informs the other master.
func (t *Tokens) Keep(ctx context.Context, id string, value []byte) error {
	if err := t.TokenStore.Keep(ctx, id, value); err != nil || !isToken(id) {
		return err
	}
	var token struct {
		Expires time.Time `json:"expire"`
	}
	if err := json.Unmarshal(value, &token); err != nil {
		return err
	}
	return t.of.decide(ctx, tokenPrefix+id, agreement{}, entry{Decision: Decision{Act: Issue}, Token: bytes.Clone(value), Until: token.Expires})
}

// Revoke deletes a token here and at the other master. The decision is stored first.
func (t *Tokens) Revoke(ctx context.Context, id string) error {
	until := time.Now().Add(unknownLife)
	if value, err := t.Get(ctx, id); err != nil {
		return err
	} else if value != nil {
		var token struct {
			Expires time.Time `json:"expire"`
		}
		if err := json.Unmarshal(value, &token); err == nil {
			until = token.Expires
		}
	}
	if err := t.of.decide(ctx, tokenPrefix+id, agreement{}, entry{Decision: Decision{Act: Revoke}, Until: until}); err != nil {
		return err
	}
	return t.DeleteUntil(ctx, id, until.Add(clocks))
}

// resolveToken applies both decisions to a token of the other master. A token is issued once,
// and once either has revoked it, it stays revoked.
func (l *Follower) resolveToken(ctx context.Context, key, id string) error {
	own, other, base, their := l.at(key)
	if base.Act == Revoke && base.Of != "" && other.Name != "" && base.Of != other.Name && own.Act != Revoke {
		// A new journal of the other master does not contain the decision: it becomes one of
		// this master.
		return l.decide(ctx, key, agreement{}, entry{Decision: Decision{Act: Revoke}, Until: time.Unix(base.Until, 0)})
	}
	if other.Act == "" || base.Act == other.Act && base.Of == other.Name && base.Upto == other.N {
		return nil
	}
	switch {
	case other.Act == Revoke:
		value, err := l.tokens.Get(ctx, id)
		switch {
		case err != nil:
			return err
		case value != nil:
			err = l.tokens.DeleteUntil(ctx, id, their.Until.Add(clocks))
		case base.Act == "": // it was never here
			l.done(key, other.N)
			return nil
		}
		if err != nil {
			return err
		}
	case other.Act == Issue && own.Act == "" && base.Act == "" && l.opts.Accepts && l.tokens.Foreign != nil:
		value, err := l.tokens.Foreign(their.Token)
		if err != nil { // as happens if the masters have different backends
			l.complain("foreign", "a token of the other master is not taken", err, "id", id[:shownOfToken])
			return nil
		}
		if l.brought() >= l.most {
			return errMany
		}
		if !l.lifts.take(l.most, time.Now()) {
			return errOften
		}
		if err := l.tokens.TokenStore.Keep(ctx, id, value); err != nil {
			return err
		}
	default:
		return nil
	}
	return l.agree(ctx, key, agreement{Act: other.Act, Of: other.Name, Upto: other.N, Until: their.Until.Unix()})
}

const (
	// unknownLife is how long, at least, the revocation of an otherwise unknown token is
	// remembered: longer than tokens live.
	unknownLife = 400 * 24 * time.Hour
	// clocks is how much the clocks of two masters may differ.
	clocks = 24 * time.Hour
)
