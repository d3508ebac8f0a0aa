package client_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/brinebus/brine/client"
)

// TestSecretsAreNotPrinted: no error contains a password or a token, and printing a login in
// any format shows neither.
func TestSecretsAreNotPrinted(t *testing.T) {
	const secret = "s3cretword"
	login := client.Login{Backend: "sharedsecret", User: "ada", Password: secret, Token: secret}
	session := client.Session{Backend: "sharedsecret", User: "ada", Token: secret}
	said := ""
	for _, v := range []any{login, &login, session, &session, []client.Login{login}, struct{ L client.Login }{login}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			said += fmt.Sprintf(verb+"\n", v)
		}
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("login", "who", login, "is", session)
	said += log.String()
	if !strings.Contains(said, "sharedsecret:ada") {
		t.Errorf("who it is does not stand there:\n%s", said)
	}
	for _, address := range []string{"tls://ada:" + secret + "@127.0.0.1:1", "tls://ada:" + secret + "%zz@127.0.0.1", "ada:" + secret + "@127.0.0.1"} {
		for _, opt := range []client.Option{client.Fingerprint("00"), client.Credentials(credentials)} {
			_, err := client.Connect(t.Context(), address, opt)
			if err == nil {
				t.Errorf("an address with a password is taken")
			}
			said += fmt.Sprintf("%v %+v\n", err, err)
		}
	}
	if strings.Contains(said, secret) {
		t.Errorf("the secret is in what is said:\n%s", said)
	}
}

// TestOneMasterIsTrusted: it is an error to say twice which master is meant, and an address
// that is not a network address is not connected to over TLS.
func TestOneMasterIsTrusted(t *testing.T) {
	other := strings.Repeat("00:", 31) + "00"
	if _, err := client.Connect(t.Context(), "tls://127.0.0.1:"+port, client.Credentials(credentials), client.Fingerprint(other)); !errors.Is(err, client.ErrUsage) {
		t.Errorf("credentials of one master and the fingerprint of another: %v", err)
	}
	if _, err := client.Connect(t.Context(), "tls://127.0.0.1:"+port, client.Fingerprint(other)); !errors.Is(err, client.ErrServer) {
		t.Errorf("another fingerprint: %v", err)
	}
	for _, address := range []string{"127.0.0.1:" + port, "nats://127.0.0.1:" + port, "tls://127.0.0.1:" + port, "relative/socket", ""} {
		if _, err := client.Connect(t.Context(), address); !errors.Is(err, client.ErrUsage) {
			t.Errorf("nothing is trusted, and %q: %v", address, err)
		}
	}
	for _, address := range []string{"nats://127.0.0.1:" + port, "tls://127.0.0.1:" + port + ",nats://127.0.0.1:" + port, "/var/run/x", "tls://", "tls://127.0.0.1:" + port + "/x"} {
		for _, opt := range []client.Option{client.Credentials(credentials), client.Fingerprint(fingerprint(t))} {
			if c, err := client.Connect(t.Context(), address, opt); err == nil {
				c.Close()
				t.Errorf("%q is taken for the address of a master", address)
			}
		}
	}
}
