package main

import (
	"crypto/ed25519"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
)

// serveSigned serves what a job of Brine is at least, without Brine: "signed", with
// the name of a request and a number, stores that, signs it and sends it to as many
// responders, which check it and store their answers under "answers.NAME"; "key" is
// the key to check it with.
func (a *answerer) serveSigned() error {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	return a.serve(map[string]func(m *nats.Msg) error{
		"key":    func(m *nats.Msg) error { return m.Respond(public) },
		"signed": func(m *nats.Msg) error { return a.signed(m.Data, private) },
	})
}

func (a *answerer) signed(request []byte, key ed25519.PrivateKey) error {
	var name string
	var n int
	if _, err := fmt.Sscan(string(request), &name, &n); err != nil {
		return err
	}
	if err := a.store(request); err != nil {
		return err
	}
	body := append(ed25519.Sign(key, request), request...)
	for i := range n {
		if err := a.nc.PublishRequest("signed."+strconv.Itoa(i), "answers."+name, body); err != nil {
			return err
		}
	}
	return nil
}
