// Package keyupdate is a client of TLS 1.3 that asks the server for new keys, again and again, which
// crypto/tls never does, and reads none of the answers: for tests of servers that must not wait for it.
package keyupdate

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net"
	"syscall"
)

// ErrSuite means that this machine prefers a cipher suite that this package does not have: it has no
// instructions for AES.
var ErrSuite = errors.New("a cipher suite without AES")

// Client is a connection whose handshake is finished.
type Client struct {
	net.Conn
	size   int // of a key
	hash   func() hash.Hash
	secret []byte // of what it sends
	aead   cipher.AEAD
	iv     []byte
	number uint64 // of the next record
}

// Dial connects with small segments and a small window, so that the server can send little.
func Dial(address string, from net.Addr) (net.Conn, error) {
	d := net.Dialer{LocalAddr: from, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		failed := c.Control(func(fd uintptr) {
			err = errors.Join(syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536),
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096))
		})
		return errors.Join(err, failed)
	}}
	return d.Dial("tcp", address)
}

// Handshake makes the handshake of a connection. The configuration is changed.
func Handshake(c net.Conn, config *tls.Config) (*Client, error) {
	var log bytes.Buffer
	config.MinVersion, config.KeyLogWriter = tls.VersionTLS13, &log
	s := tls.Client(c, config)
	if err := s.Handshake(); err != nil {
		return nil, err
	}
	k := &Client{Conn: c}
	switch s.ConnectionState().CipherSuite {
	case tls.TLS_AES_128_GCM_SHA256:
		k.size, k.hash = 16, sha256.New
	case tls.TLS_AES_256_GCM_SHA384:
		k.size, k.hash = 32, sha512.New384
	default:
		return nil, ErrSuite
	}
	for line := range bytes.Lines(log.Bytes()) {
		words := bytes.Fields(line)
		if len(words) == 3 && string(words[0]) == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(string(words[2]))
			if err != nil {
				return nil, err
			}
			return k, k.use(secret)
		}
	}
	return nil, errors.New("the key log has no secret")
}

// use begins with the keys of a secret (RFC 8446, 7.3).
func (k *Client) use(secret []byte) error {
	key, err := k.expand(secret, "key", k.size)
	if err != nil {
		return err
	}
	if k.iv, err = k.expand(secret, "iv", 12); err != nil {
		return err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	k.secret, k.number = secret, 0
	k.aead, err = cipher.NewGCM(block)
	return err
}

// expand is HKDF-Expand-Label (RFC 8446, 7.1).
func (k *Client) expand(secret []byte, label string, size int) ([]byte, error) {
	label = "tls13 " + label
	info := fmt.Appendf(nil, "%c%c%c%s%c", 0, size, len(label), label, 0)
	return hkdf.Expand(k.hash, secret, string(info), size)
}

// The types of records.
const (
	handshake       = 22
	applicationData = 23
)

// record encrypts a record (RFC 8446, 5.2).
func (k *Client) record(kind byte, b []byte) []byte {
	inner := append(bytes.Clone(b), kind)
	head := []byte{applicationData, 3, 3}
	head = binary.BigEndian.AppendUint16(head, uint16(len(inner)+k.aead.Overhead()))
	nonce := bytes.Clone(k.iv)
	for i, x := range binary.BigEndian.AppendUint64(nil, k.number) {
		nonce[4+i] ^= x
	}
	k.number++
	return k.aead.Seal(head, nonce, inner, head)
}

// Data returns records that contain data.
func (k *Client) Data(b []byte) []byte { return k.record(applicationData, b) }

// Updates returns n requests for new keys (RFC 8446, 4.6.3).
func (k *Client) Updates(n int) (list []byte, err error) {
	for range n {
		list = append(list, k.record(handshake, []byte{24, 0, 0, 1, 1})...)
		secret, err := k.expand(k.secret, "traffic upd", k.hash().Size())
		if err != nil {
			return nil, err
		}
		if err := k.use(secret); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// most is how many of them crypto/tls accepts between two bytes of data.
const most = 16

// Flood sends data byte by byte, each with as many requests for new keys as the server accepts, and reads
// nothing. It returns when all is sent, or when the connection has ended.
func (k *Client) Flood(data []byte) error {
	for i := range data {
		b := k.Data(data[i : i+1])
		updates, err := k.Updates(most)
		if err != nil {
			return err
		}
		if _, err := k.Write(append(b, updates...)); err != nil {
			return err
		}
	}
	return nil
}
