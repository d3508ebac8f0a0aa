package netapi

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/value"
)

// hookTag is the tag space of what comes in by the webhook.
const hookTag = "salt/netapi/hook"

// fireHook fires what was posted as an event, in the name of the session; without sessions
// for webhooks in that of the user whom this program runs as. Of the headers nothing is in
// it: a token may be among them.
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
	payer := "hook " + r.address.String()
	if r.session != nil {
		payer = r.session.backend + ":" + r.session.user
	}
	leave, err := r.s.limits.work(payer)
	if err != nil {
		return err
	}
	defer leave()
	q := protocol.Fire{Events: []event.Item{{Tag: tag, Data: data}}}
	if r.session == nil {
		c, err := r.dial()
		if err != nil {
			return err
		}
		defer c.close()
		return r.fired(c.conn.Ask(r.Context(), protocol.OpFire, q, nil))
	}
	c, err := r.call(r.Context())
	if err != nil {
		return err
	}
	defer c.close()
	err = c.conn.Ask(r.Context(), protocol.OpFire, q, nil)
	if rpc.CodeOf(err) == rpc.Denied && !c.holds(r.Context(), r.address) {
		return because(err, http.StatusUnauthorized, notAuthentic)
	}
	return r.fired(err)
}

// fired words a refusal: of the tag by event_acl.
func (r *request) fired(err error) error {
	if rpc.CodeOf(err) == rpc.Denied {
		return because(err, http.StatusUnauthorized, authorization)
	}
	return err
}
