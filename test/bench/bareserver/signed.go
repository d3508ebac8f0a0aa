package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nats-io/nats.go"
)

// serveSigned serves what a job of Brine is at least, without Brine: "signed", with
// the name of a request and two numbers, stores that, signs it and sends it to so many
// responders, which check it and store their answers under "answers.NAME", after it has stored
// so many other messages, one after the other; "kept", likewise with
// one responder, is all that a job of Brine does; "key" is the key to check it with.
func (a *answerer) serveSigned() error {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	return a.serve(map[string]func(m *nats.Msg) error{
		"key":    func(m *nats.Msg) error { return m.Respond(public) },
		"signed": func(m *nats.Msg) error { return a.signed(m.Data, private) },
		"kept":   func(m *nats.Msg) error { return a.kept(m, private) },
	})
}

func (a *answerer) signed(request []byte, key ed25519.PrivateKey) error {
	var name string
	var n, before int
	if _, err := fmt.Sscan(string(request), &name, &n, &before); err != nil {
		return err
	}
	for range before + 1 {
		if err := a.store(request); err != nil {
			return err
		}
	}
	body := append(ed25519.Sign(key, request), request...)
	for i := range n {
		if err := a.nc.PublishRequest("signed."+strconv.Itoa(i), "answers."+name, body); err != nil {
			return err
		}
	}
	return nil
}

// kept does with a request what a job is for: who asked is on the disk, the request is stored and what is to
// be done is on the disk before the responder has it, signed, and its receipt and its answer are stored before
// anybody is told of them.
func (a *answerer) kept(m *nats.Msg, key ed25519.PrivateKey) error {
	if err := errors.Join(appendSynced(a.decided, m.Data), a.store(m.Data), appendSynced(a.planned, m.Data)); err != nil {
		return err
	}
	inbox := nats.NewInbox()
	sub, err := a.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // it lived for this
	if err := a.nc.PublishRequest("signed.kept", inbox, append(ed25519.Sign(key, m.Data), m.Data...)); err != nil {
		return err
	}
	var last []byte
	if err := pass(sub, func(b []byte) error { last = b; return a.store(b) }); err != nil {
		return err
	}
	return m.Respond(last)
}

func (a *answerer) openFiles(dir string) error {
	var errs [2]error
	a.decided, errs[0] = os.Create(filepath.Join(dir, "decided"))
	a.planned, errs[1] = os.Create(filepath.Join(dir, "planned"))
	return errors.Join(errs[:]...)
}

func appendSynced(f *os.File, b []byte) error {
	_, err := f.Write(b)
	return errors.Join(err, f.Sync())
}
