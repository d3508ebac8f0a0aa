// Command bare does with nothing but nats.go what Brine's tools do: one request,
// a request to many, and the answering of both. It has no options, no
// configuration and no errors worth reading.
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/pki"
)

func main() {
	if len(os.Args) < 4 {
		fail(errors.New("usage: bare request|scatter|gather|signed|respond|check|follow|http URL SUBJECT, bare keep URL SUBJECT FILE, or bare secure URL DIR SUBJECT"))
	}
	url, subjects := os.Args[2], os.Args[3:]
	switch os.Args[1] {
	case "request":
		fail(request(url, subjects[0]))
	case "scatter":
		fail(scatter(url, subjects, len(subjects)))
	case "gather":
		fail(scatter(url, subjects, 2))
	case "signed":
		fail(signed(url, subjects[0], subjects[1:]...))
	case "secure":
		fail(secure(url, subjects[0], subjects[1:]))
	case "respond":
		fail(respond(url, subjects[0]))
	case "follow":
		fail(respond(url, subjects[0], following...))
	case "check":
		fail(check(url, subjects[0], ""))
	case "keep":
		fail(check(url, subjects[0], subjects[1]))
	case "http":
		fail(serve(url))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// request is what salt-call asks its daemon.
func request(url, subject string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	m, err := nc.Request(subject, []byte("test.ping"), 5*time.Second)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n", m.Data)
	return err
}

// scatter sends the request on each subject and prints so many answers.
func scatter(url string, subjects []string, answers int, how ...nats.Option) error {
	nc, err := nats.Connect(url, how...)
	if err != nil {
		return err
	}
	defer nc.Close()
	inbox := nats.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	for _, s := range subjects {
		if err := nc.PublishRequest(s, inbox, []byte("test.ping")); err != nil {
			return err
		}
	}
	for range answers {
		m, err := sub.NextMsg(5 * time.Second)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", m.Data)
	}
	return nil
}

// signed has a request signed and stored and sent to so many responders, which check
// it, and prints their answers, which are stored. The first of more, if given, is how many other messages are
// stored before, and with "shown" after that the answers come only once they are stored.
func signed(url, responders string, more ...string) error {
	n, err := strconv.Atoi(responders)
	if err != nil {
		return err
	}
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	name := nats.NewInbox()[len(nats.InboxPrefix):]
	answers := "answers."
	if len(more) == 0 {
		more = []string{"0"}
	}
	if len(more) > 1 {
		answers = "shown."
	}
	sub, err := nc.SubscribeSync(answers + name)
	if err != nil {
		return err
	}
	if err := nc.Publish("signed", []byte(name+" "+responders+" "+strings.Join(more, " "))); err != nil {
		return err
	}
	for range n {
		m, err := sub.NextMsg(5 * time.Second)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", m.Data)
	}
	return nil
}

// secure is scatter over TLS with a certificate on both sides, as a program on
// another machine has to do it: its own key and certificate, and the certificate
// that the server must show, are files in dir.
func secure(url, dir string, subjects []string) error {
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key"))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "server.pem"))
	if err != nil {
		return err
	}
	pinned, _ := pem.Decode(text)
	if pinned == nil {
		return errors.New("there is no certificate in server.pem")
	}
	return scatter(url, subjects, len(subjects), nats.Secure(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own},
		InsecureSkipVerify: true, //nolint:gosec // it compares the certificate itself
		VerifyPeerCertificate: func(shown [][]byte, _ [][]*x509.Certificate) error {
			if len(shown) == 0 || !bytes.Equal(shown[0], pinned.Bytes) {
				return errors.New("the server shows another certificate")
			}
			return nil
		},
	}))
}

// following is for one that has two servers, and leaves one that is silent as soon
// as a minion with master_alive_interval 1 would.
var following = []nats.Option{
	nats.DontRandomize(), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1), nats.ReconnectWait(10 * time.Millisecond), nats.ReconnectJitter(0, 0),
	nats.PingInterval(time.Second * 2 / 3), nats.MaxPingsOutstanding(1),
}

// respond answers forever, over TLS with a certificate on both sides.
func respond(url, subject string, more ...nats.Option) error {
	return answer(url, subject, func(*nats.Conn, *nats.Msg) error { return nil }, more...)
}

// check answers what is signed by the server, forever, likewise. With a file it notes there what it has
// begun, and sends a receipt before the answer.
func check(url, subject, file string) error {
	var key ed25519.PublicKey
	var begun *os.File
	if file != "" {
		var err error
		if begun, err = os.Create(file); err != nil {
			return err
		}
	}
	return answer(url, subject, func(nc *nats.Conn, m *nats.Msg) error {
		if key == nil {
			r, err := nc.Request("key", nil, 5*time.Second)
			if err != nil {
				return err
			}
			key = r.Data
		}
		if len(m.Data) < ed25519.SignatureSize || !ed25519.Verify(key, m.Data[ed25519.SignatureSize:], m.Data[:ed25519.SignatureSize]) {
			return errors.New("the signature does not fit")
		}
		if begun == nil {
			return nil
		}
		_, err := begun.Write(m.Data[ed25519.SignatureSize:])
		return errors.Join(err, m.Respond([]byte("received")))
	})
}

func answer(url, subject string, may func(*nats.Conn, *nats.Msg) error, more ...nats.Option) error {
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		return err
	}
	certificate, err := key.Certificate("bare")
	if err != nil {
		return err
	}
	nc, err := nats.Connect(url, append(more, nats.Secure(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true, //nolint:gosec // a measurement
	}))...)
	if err != nil {
		return err
	}
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
		if err := may(nc, m); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		_ = m.Respond([]byte("local:\n    True"))
	}); err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

// serve answers HTTP forever: at /SUBJECT by asking that, and at /signed by what signed does with
// one responder. It prints its address.
func serve(url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a measurement
		body, err := io.ReadAll(r.Body)
		var m *nats.Msg
		if subject := r.URL.Path[1:]; err == nil && subject == "signed" {
			m, err = askSigned(nc)
		} else if err == nil {
			m, err = nc.Request(subject, body, 5*time.Second)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(m.Data) // whoever has gone misses it
	}))
}

func askSigned(nc *nats.Conn) (*nats.Msg, error) {
	name := nats.NewInbox()[len(nats.InboxPrefix):]
	sub, err := nc.SubscribeSync("answers." + name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // it lived for this
	if err := nc.Publish("signed", []byte(name+" 1 0")); err != nil {
		return nil, err
	}
	return sub.NextMsg(5 * time.Second)
}
