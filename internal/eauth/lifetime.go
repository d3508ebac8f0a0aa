package eauth

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
)

// ErrLifetime is wrapped if a token may not have the requested lifetime.
var ErrLifetime = errors.New("the lifetime of the token")

// lifetimes defines how long tokens are valid, and which users may choose.
type lifetimes struct {
	usual  time.Duration       // token_expire
	anyone bool                // may choose
	users  map[string][]string // users who may choose, by backend
}

// maxLife limits the chosen lifetime: a longer one is a mistake.
const maxLife = 10 * 365 * 24 * time.Hour

// parseLifetimes reads token_expire_user_override: true, false, or the users of each backend.
func parseLifetimes(cfg *config.Master) (lifetimes, error) {
	l := lifetimes{usual: cfg.TokenExpire}
	o := cfg.TokenExpireUserOverride
	switch v := o.Value().(type) {
	case nil:
	case bool:
		l.anyone = v
	case map[string]any:
		l.users = map[string][]string{}
		for backend, users := range v {
			names, err := userList(users)
			if err != nil {
				return l, o.At(nil, fmt.Errorf("%s: %w", backend, err))
			}
			l.users[backend] = names
		}
	default:
		return l, o.At(nil, salt.WithHint(errors.New("it is neither true or false nor a mapping"), "as in {pam: [fred, gary]}"))
	}
	return l, nil
}

func userList(v any) ([]string, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, salt.WithHint(errors.New("the users are not a list"), "as in pam: [fred]")
	}
	var names []string
	for _, v := range list {
		name, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%v is not the name of a user", v)
		}
		names = append(names, name)
	}
	return names, nil
}

// of returns the lifetime of a token; want 0 is the usual one.
func (l lifetimes) of(backend, user string, want time.Duration, free bool) (time.Duration, error) {
	switch {
	case want == 0:
		return l.usual, nil
	case want < time.Second || want > maxLife:
		return 0, fmt.Errorf("%w: it is from one second to ten years", ErrLifetime)
	case free, l.anyone, slices.Contains(l.users[backend], user):
		return want, nil
	}
	return 0, salt.WithHint(fmt.Errorf("%w: %s may not choose it", ErrLifetime, user), "an operator grants it by token_expire_user_override")
}
