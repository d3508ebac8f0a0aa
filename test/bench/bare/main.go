// Command bare does with nothing but nats.go what Brine's tools do: one request,
// a request to many, and the answering of both. It has no options, no
// configuration and no errors worth reading.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/pki"
)

func main() {
	if len(os.Args) < 4 {
		fail(errors.New("usage: bare request|scatter|gather|signed|respond|follow URL SUBJECT, or bare secure URL DIR SUBJECT"))
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
		fail(signed(url, subjects[0]))
	case "secure":
		fail(secure(url, subjects[0], subjects[1:]))
	case "respond":
		fail(respond(url, subjects[0]))
	case "follow":
		fail(respond(url, subjects[0], following...))
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
// it, and prints their answers, which are stored.
func signed(url, responders string) error {
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
	sub, err := nc.SubscribeSync("answers." + name)
	if err != nil {
		return err
	}
	if err := nc.Publish("signed", []byte(name+" "+responders)); err != nil {
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

// respond answers for ever, over TLS with a certificate on both sides.
func respond(url, subject string, more ...nats.Option) error {
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
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte("local:\n    True")) }); err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}
