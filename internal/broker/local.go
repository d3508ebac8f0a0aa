package broker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/brinebus/brine/internal/socket"
)

// ServeLocal opens the local socket at path, for everybody on this machine, and accepts
// connections until the broker stops, which closes it. Each becomes a connection to the server
// in this process, as the user that the kernel names.
func (b *Broker) ServeLocal(path string) error {
	l, err := socket.Listen(path, 0o666)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.locals = append(b.locals, l)
	b.mu.Unlock()
	b.wg.Go(func() {
		if !b.isReady() {
			return
		}
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // for example out of file descriptors, which may pass
				b.auth.throttle.Log(b.opts.Log, slog.LevelError, "accept", 1, "connections cannot be taken on the local socket for the moment", "err", err)
				time.Sleep(acceptPause)
				continue
			}
			b.wg.Go(func() { b.serveOne(c) })
		}
	})
	return nil
}

func (b *Broker) serveOne(c net.Conn) {
	defer c.Close()
	peer, err := socket.PeerOf(c)
	if err != nil {
		b.opts.Log.Error("local connection refused", "err", err)
		return
	}
	if err := b.users.enter(peer.UID); err != nil {
		b.auth.refused("local user", "uid", peer.UID, "err", err) // one line for all uids: a user may have many
		return
	}
	defer b.users.leave(peer.UID)
	in, err := b.server.InProcessConn()
	if err != nil {
		return // the server is stopping
	}
	defer in.Close()
	v := &localClient{Peer: peer, conn: c}
	err = b.join(c, in, v)
	b.auth.takeLocal(v.secret)
	if cid, entered := v.end(); entered {
		b.left(cid)
	}
	if err != nil {
		b.opts.Log.Debug("local connection ended early", "uid", peer.UID, "err", err)
	}
}

// join passes bytes both ways. The client's first line is its CONNECT: the secret for the user
// that the kernel names is put into it, and any credentials are taken out.
func (b *Broker) join(c, in net.Conn, v *localClient) error {
	done := make(chan struct{})
	go func() {
		_ = pass(c, in) // ends when either side closes
		c.Close()
		close(done)
	}()
	defer func() { in.Close(); <-done }()
	_ = c.SetReadDeadline(time.Now().Add(authTimeout))
	r := bufio.NewReaderSize(c, maxControlLine)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Time{})
	line, err = b.identify(line, v)
	if err != nil {
		return err
	}
	if _, err := in.Write(line); err != nil {
		return err
	}
	came, _ := r.Peek(r.Buffered()) // what came together with the first line
	if _, err := in.Write(came); err != nil {
		return err
	}
	return pass(in, localConn{c, b.auth.meter, v, done})
}

// localConn is a connection through the local socket; it is read as its share allows.
type localConn struct {
	net.Conn
	meter *meter
	v     *localClient
	gone  <-chan struct{}
}

// Read implements io.Reader.
func (l localConn) Read(b []byte) (int, error) { return l.v.metered(l.meter, l.gone, l.Conn, b) }

// Limits of what is passed on at once. The largest is what the server reads at once.
const (
	minPass = 4 << 10
	maxPass = 64 << 10
)

// pass passes bytes on until either side closes, in larger pieces where many come: each piece
// costs two system calls and a switch between two goroutines.
func pass(to io.Writer, from io.Reader) error {
	b := make([]byte, minPass)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n == len(b) && n < maxPass {
			b = make([]byte, 4*n)
		}
	}
}

// connect is what is passed on of a client's CONNECT. Everything else, above all other
// credentials, is left out however it is spelled: the server, and this, match the names of JSON
// fields in upper and lower case.
type connect struct {
	User         string `json:"user"`
	Pass         string `json:"pass"`
	Name         string `json:"name"`
	Lang         string `json:"lang"`
	Version      string `json:"version"`
	Protocol     int    `json:"protocol"`
	Verbose      bool   `json:"verbose"`
	Pedantic     bool   `json:"pedantic"`
	Echo         bool   `json:"echo"`
	Headers      bool   `json:"headers"`
	NoResponders bool   `json:"no_responders"`
}

// identify writes into the CONNECT line who the peer is according to the kernel.
func (b *Broker) identify(line []byte, v *localClient) ([]byte, error) {
	body, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("CONNECT "))
	if !ok {
		return nil, errors.New("the first line is not CONNECT")
	}
	c := connect{Echo: true} // the protocol's default
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, fmt.Errorf("unreadable CONNECT: %w", err)
	}
	v.claim = c.Pass
	v.secret = b.auth.expect(v)
	c.Pass = v.secret
	out, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return append(append([]byte("CONNECT "), out...), '\r', '\n'), nil
}
