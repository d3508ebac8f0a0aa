package netapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/value"
)

// hookTag is the tag prefix of the webhook's events.
const hookTag = "salt/netapi/hook"

// fireHook fires the body of a POST as an event, with the session's login; if webhooks need no
// session, as the user that this program runs as. No headers are included, since one may be a
// token.
func fireHook(r *request) error {
	if err := r.acceptable(); err != nil {
		return err
	}
	post := r.body
	if post == nil {
		post = map[string]any{}
	}
	body := string(r.raw)
	if r.form {
		body = ""
	}
	if !utf8.ValidString(body) {
		return problem(http.StatusBadRequest, "The body is not UTF-8.")
	}
	data, err := value.Encode(map[string]any{
		"body": body, "post": post, "headers": map[string]any{"Remote-Addr": r.address.String()},
	})
	if err != nil {
		return err
	}
	tag := strings.Join(append([]string{hookTag}, r.rest...), "/")
	if err := r.fire(tag, data); err != nil {
		return err
	}
	return r.send(http.StatusOK, map[string]any{"success": true})
}

func (r *request) fire(tag string, data []byte) error {
	who := "hook " + r.address.String()
	if r.session != nil {
		who = r.session.backend + ":" + r.session.user
	}
	leave, err := r.s.limits.work(who)
	if err != nil {
		return err
	}
	defer leave()
	if r.session == nil {
		c, err := r.dial(r.Context(), r.s.limits.hook)
		if err != nil {
			return err
		}
		defer c.close()
		return r.fired(fireOne(r.Context(), c.conn, tag, data))
	}
	c, err := r.call(r.Context())
	if err != nil {
		return err
	}
	defer c.close()
	err = fireOne(r.Context(), c.conn, tag, data)
	if errors.Is(err, client.ErrDenied) && !c.holds(r.Context(), r.address) {
		return because(err, http.StatusUnauthorized, notAuthentic)
	}
	return r.fired(err)
}

func fireOne(ctx context.Context, conn *client.Conn, tag string, data []byte) error {
	_, err := conn.Fire(ctx, client.Event{Tag: tag, Data: data})
	return err
}

// fired makes the answer for a tag that event_acl refuses.
func (r *request) fired(err error) error {
	if errors.Is(err, client.ErrDenied) {
		return because(err, http.StatusUnauthorized, authorization)
	}
	return err
}
