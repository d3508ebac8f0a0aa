package membership

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/pki"
)

// TestAMemberWithOtherPeersIsMissing: a master can join only where the others name the same members. A member of an
// earlier version does not tell which it names.
func TestAMemberWithOtherPeersIsMissing(t *testing.T) {
	newKey := func() *pki.PrivateKey {
		t.Helper()
		key, err := pki.Generate(pki.Ed25519, 0)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	signer := newKey()
	of := func(name string, set func(member.Card) member.Card) (member.Rule, *pki.PrivateKey, []byte) {
		t.Helper()
		key := newKey()
		signature, err := signer.SignPublic(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		return member.Rule{Card: set(member.NewCard("prod", name, "1.0")), Signer: signer.Public()}, key, signature
	}
	three := []string{"m1:4520", "m2:4520", "m3:4520"}
	naming := func(peers ...string) func(member.Card) member.Card {
		return func(c member.Card) member.Card { return c.Naming(peers) }
	}
	p := &probe{}
	rule, key, signature := of("m1", naming(three...))
	var err error
	if p.certificate, err = rule.Own(key, signature); err != nil {
		t.Fatal(err)
	}
	p.rule = rule
	for n, set := range []func(member.Card) member.Card{naming(three...), naming("m2:4520", "m3:4520", "m9:4520"), func(c member.Card) member.Card { return c }} {
		rule, key, signature := of("m2", set)
		conf, err := rule.TLS(key, signature, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := tls.Listen("tcp", "127.0.0.1:0", conf)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func(c net.Conn) {
					defer c.Close()
					_, _ = c.Write([]byte("I")) // after the handshake, as a route begins
					_, _ = c.Read(make([]byte, 1))
				}(c)
			}
		}()
		p.peers = []string{l.Addr().String()}
		err = p.all(t.Context())[0].err
		if differs := n == 1; (err != nil) != differs || differs && !strings.Contains(err.Error(), "cluster_peers of m2 differs") {
			t.Errorf("member %d: %v", n, err)
		}
	}
}
