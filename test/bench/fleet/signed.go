package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
)

// answerSigned answers requests that the server's program has signed: it checks the
// signature, and the answer is given when the server has it stored.
func answerSigned(nc *nats.Conn, i int) error {
	key, err := nc.Request("key", nil, patience)
	for begun := time.Now(); errors.Is(err, nats.ErrNoResponders) && time.Since(begun) < patience; { // its servers make their store first
		time.Sleep(50 * time.Millisecond)
		key, err = nc.Request("key", nil, patience)
	}
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
	answer := []byte("local:\n    True")
	if _, err := nc.Request(m.Reply, answer, patience); err != nil {
		return err
	}
	// A request whose last word is that has its answers shown only once they are stored.
	if name, ok := strings.CutPrefix(m.Reply, "answers."); ok && bytes.HasSuffix(m.Data, []byte(" shown")) {
		return nc.Publish("shown."+name, answer)
	}
	return nil
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
