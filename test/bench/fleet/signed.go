package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
)

// answerSigned answers requests that the server's program has signed: it checks the
// signature, and the answer is given when the server has it stored.
func answerSigned(nc *nats.Conn, i int) error {
	key, err := nc.Request("key", nil, patience)
	if err != nil {
		return err
	}
	_, err = nc.Subscribe("signed."+strconv.Itoa(i), func(m *nats.Msg) {
		if err := answerOne(nc, key.Data, m); err != nil {
			fmt.Fprintln(os.Stderr, "fleet:", err)
		}
	})
	return err
}

func answerOne(nc *nats.Conn, key ed25519.PublicKey, m *nats.Msg) error {
	if len(m.Data) < ed25519.SignatureSize || !ed25519.Verify(key, m.Data[ed25519.SignatureSize:], m.Data[:ed25519.SignatureSize]) {
		return errors.New("a request with a wrong signature")
	}
	_, err := nc.Request(m.Reply, []byte("local:\n    True"), patience)
	return err
}

// signer has a request signed, stored and sent to n responders, and takes their
// answers, which are stored.
func signer(nc *nats.Conn, n int) principal {
	return func(ctx context.Context) (int, error) {
		name := bus.NewNonce()
		sub, err := nc.SubscribeSync("answers." + name)
		if err != nil {
			return 0, err
		}
		defer func() { _ = sub.Unsubscribe() }() // it lived for this round
		if err := nc.Publish("signed", []byte(name+" "+strconv.Itoa(n)+" 0")); err != nil {
			return 0, err
		}
		return take(ctx, sub, n)
	}
}
