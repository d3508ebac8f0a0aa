package netapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/brinebus/brine/client"
)

// readyWord is the message by which a client starts the events.
const readyWord = "websocket client ready"

// Limits of a websocket.
const (
	readyTime = time.Minute // until readyWord must have come
	maxWord   = 4 << 10     // bytes of a message of the client
)

// websockets sends events over a websocket.
func websockets(r *request) error {
	if err := r.socketSession(); err != nil {
		return err
	}
	leave, err := r.s.limits.stream(r.session.backend + ":" + r.session.user)
	if err != nil {
		return err
	}
	defer leave()
	q, _, err := r.listen()
	if err != nil {
		return err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return problem(http.StatusBadRequest, "The request does not ask for a websocket.")
	}
	conn, err := websocket.Accept(r.w, r.Request, &websocket.AcceptOptions{OriginPatterns: r.s.opts.Origins})
	if err != nil {
		return because(err, http.StatusForbidden, "The websocket was refused.")
	}
	r.w.status = http.StatusSwitchingProtocols
	defer conn.CloseNow() //nolint:errcheck // it may be closed already
	conn.SetReadLimit(maxWord)
	if err := awaitReady(r.Context(), conn); err != nil {
		return nil //nolint:nilerr // the client did not send readyWord
	}
	return r.overSocket(conn, q)
}

// socketSession finds the session, in the path or by cookie: browsers cannot send headers here.
func (r *request) socketSession() error {
	id, byCookie := r.shown()
	if len(r.rest) > 0 {
		id, byCookie = r.rest[0], false
	}
	if origin := r.Header.Get("Origin"); byCookie && origin != "" && !r.ownOrigin(origin) && !r.s.origins[origin] {
		return problem(http.StatusForbidden, "The request comes from another site, which cors_origin does not name.")
	}
	if r.session = r.s.sessions.find(id); r.session == nil || time.Now().After(r.session.end) {
		return problem(http.StatusUnauthorized, noPermission)
	}
	return r.s.mayCome(r.session.user, r)
}

func awaitReady(ctx context.Context, conn *websocket.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		_, b, err := conn.Read(ctx)
		if err != nil || string(b) == readyWord {
			return err
		}
	}
}

// overSocket sends the events until the client is gone or its login ends.
func (r *request) overSocket(conn *websocket.Conn, q client.ListenOptions) error {
	ctx := conn.CloseRead(r.Context())
	r.Request = r.WithContext(ctx)
	write := func(b []byte) error {
		ctx, cancel := context.WithTimeout(ctx, writeTime)
		defer cancel()
		return conn.Write(ctx, websocket.MessageText, b)
	}
	err := r.stream(q, func() error { return nil }, func(e heard) error {
		return write(append(append([]byte("data: "), text(e.Event)...), "\n\n"...))
	}, func() error {
		ctx, cancel := context.WithTimeout(ctx, writeTime)
		defer cancel()
		return conn.Ping(ctx)
	})
	_ = conn.Close(websocket.StatusPolicyViolation, "the events have ended") // it may be closed already
	return err
}
