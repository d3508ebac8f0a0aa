package attack

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strconv"
	"strings"
	"time"
)

// key is a key pair with the name that its certificate claims.
type key struct {
	name   string
	secret ed25519.PrivateKey
}

func newKey(name string) key {
	_, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return key{name, secret}
}

func (k key) spki() []byte {
	der, err := x509.MarshalPKIXPublicKey(k.secret.Public())
	if err != nil {
		panic(err)
	}
	return der
}

func (k key) public() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: k.spki()}))
}

func (k key) private() string {
	der, err := x509.MarshalPKCS8PrivateKey(k.secret)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func parseKey(name string, text []byte) (key, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return key{}, errors.New("no PEM")
	}
	secret, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return key{}, err
	}
	own, ok := secret.(ed25519.PrivateKey)
	if !ok {
		return key{}, errors.New("no Ed25519 key")
	}
	return key{name, own}, nil
}

// token names the key in subjects.
func (k key) token() string {
	sum := sha256.Sum256(k.spki())
	return hex.EncodeToString(sum[:])
}

func (k key) certificate() tls.Certificate {
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: k.name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, k.secret.Public(), k.secret)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: k.secret}
}

// wire is a connection on which the protocol of NATS is spoken by hand.
type wire struct {
	net.Conn
	r     *bufio.Reader
	w     *bufio.Writer
	inbox string // its private prefix
	root  string // of the subjects on which it asks
	next  int

	head, confirm string // of the latest message: its headers, and where it is to be confirmed
}

const wireTime = 15 * time.Second // for what a server must do at once

// dialTCP connects from the given address and reads the greeting.
func dialTCP(address, from string) (*wire, error) {
	d := net.Dialer{Timeout: wireTime}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	_ = c.(*net.TCPConn).SetLinger(0) // a flood must not fill this machine's table of closed connections
	w := newWire(c)
	_ = c.SetReadDeadline(time.Now().Add(wireTime))
	line, err := w.line()
	if err == nil && !strings.HasPrefix(line, "INFO ") {
		err = fmt.Errorf("the server greets with %.100q", line)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return w, nil
}

func newWire(c net.Conn) *wire {
	return &wire{Conn: c, r: bufio.NewReaderSize(c, 4<<10), w: bufio.NewWriterSize(c, 4<<10)}
}

// dialTLS is dialTCP with the handshake, and no word behind it.
func dialTLS(address, from string, k key) (*wire, error) {
	w, err := dialTCP(address, from)
	if err != nil {
		return nil, err
	}
	_ = w.SetDeadline(time.Now().Add(wireTime))
	s := tls.Client(w.Conn, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{k.certificate()}})
	if err := s.Handshake(); err != nil {
		w.Close()
		return nil, err
	}
	own := newWire(s)
	own.inbox = "_INBOX." + k.token()
	own.root = "salt.minion." + k.name
	return own, nil
}

// dialKey connects with a key, as whoever the master takes it for.
func dialKey(address, from string, k key) (*wire, error) {
	w, err := dialTLS(address, from, k)
	if err != nil {
		return nil, err
	}
	if client, ok := strings.CutPrefix(k.name, "client:"); ok {
		w.root = "salt.client." + client
	}
	return w, w.login()
}

// dialSocket connects to the local socket of a daemon.
func dialSocket(path string, uid int) (*wire, error) {
	c, err := net.DialTimeout("unix", path, wireTime)
	if err != nil {
		return nil, err
	}
	w := newWire(c)
	w.inbox, w.root = fmt.Sprintf("_INBOX.user%d", uid), fmt.Sprintf("salt.user.%d", uid)
	return w, w.login()
}

// login says who it is and subscribes to its inbox. A refusal closes the connection.
func (w *wire) login() (err error) {
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	_ = w.SetDeadline(time.Now().Add(wireTime))
	nonce := rand.Text()
	w.inbox += "." + nonce
	fmt.Fprintf(w.w, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1,\"user\":%q}\r\nSUB %s.> 1\r\nPING\r\n", nonce, w.inbox)
	if err := w.w.Flush(); err != nil {
		return err
	}
	for {
		line, err := w.line()
		if err != nil {
			return err
		}
		switch {
		case strings.HasPrefix(line, "PONG"):
			return w.SetDeadline(time.Time{})
		case strings.HasPrefix(line, "-ERR"):
			return errors.New(line)
		}
	}
}

func (w *wire) line() (string, error) {
	line, err := w.r.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

// reply is a fresh subject for an answer.
func (w *wire) reply() string {
	w.next++
	return w.inbox + "." + strconv.Itoa(w.next)
}

// publish puts a message on its way; it leaves with the next Flush, or when there is much.
func (w *wire) publish(subject, reply string, body ...[]byte) error {
	n := 0
	for _, b := range body {
		n += len(b)
	}
	_ = w.SetWriteDeadline(time.Now().Add(wireTime))
	fmt.Fprintf(w.w, "PUB %s %s %d\r\n", subject, reply, n)
	return w.write(body)
}

// publishPart is publish for a piece of a message that goes on in the next one.
func (w *wire) publishPart(subject, reply string, body []byte) error {
	const head = "NATS/1.0\r\nSalt-Part: more\r\n\r\n"
	_ = w.SetWriteDeadline(time.Now().Add(wireTime))
	fmt.Fprintf(w.w, "HPUB %s %s %d %d\r\n%s", subject, reply, len(head), len(head)+len(body), head)
	return w.write([][]byte{body})
}

func (w *wire) write(body [][]byte) error {
	for _, b := range body {
		if _, err := w.w.Write(b); err != nil {
			return err
		}
	}
	_, err := w.w.WriteString("\r\n")
	return err
}

// ask sends a request in as many pieces as the protocol wants.
func (w *wire) ask(subject, reply string, body []byte) error {
	const piece = 512 << 10
	for len(body) > piece {
		if err := w.publishPart(subject, reply, body[:piece]); err != nil {
			return err
		}
		body = body[piece:]
	}
	return w.publish(subject, reply, body)
}

// errNobody is the answer of a server behind which nobody serves.
var errNobody = errors.New("no responders")

// message reads the next message, and answers what the server asks meanwhile.
func (w *wire) message() (subject string, body []byte, err error) {
	for {
		line, err := w.line()
		if err != nil {
			return "", nil, err
		}
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "PING":
			if _, err := w.w.WriteString("PONG\r\n"); err != nil {
				return "", nil, err
			}
			if err := w.w.Flush(); err != nil {
				return "", nil, err
			}
		case words[0] == "-ERR":
			return "", nil, errors.New(line)
		case words[0] == "MSG" || words[0] == "HMSG":
			return w.payload(words)
		}
	}
}

func (w *wire) payload(words []string) (string, []byte, error) {
	size, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return "", nil, err
	}
	b := make([]byte, size+2)
	if _, err := io.ReadFull(w.r, b); err != nil {
		return "", nil, err
	}
	b = b[:size]
	w.head, w.confirm = "", ""
	if len(words) == 5 && words[0] == "MSG" || len(words) == 6 {
		w.confirm = words[3]
	}
	if words[0] == "MSG" {
		return words[1], b, nil
	}
	head, err := strconv.Atoi(words[len(words)-2])
	if err != nil || head > len(b) {
		return "", nil, fmt.Errorf("unreadable message: %q", words)
	}
	if strings.Contains(string(b[:head]), " 503") {
		return words[1], nil, errNobody
	}
	w.head = string(b[:head])
	return words[1], b[head:], nil
}

// drain reads what comes and drops it, until the end of the connection.
func (w *wire) drain() { _, _ = io.Copy(io.Discard, w.r) }
