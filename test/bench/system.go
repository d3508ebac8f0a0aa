package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/test/port"
)

// system is a master with minions in a folder of its own.
type system struct {
	daemons
	bin  string
	port int
	cmd  map[string]*exec.Cmd // by id; the master is "master"
}

func newSystem(bin, dir string) (*system, error) {
	n, err := port.Reserve()
	if err != nil {
		return nil, err
	}
	return &system{daemons: daemons{dir: dir}, bin: bin, port: n, cmd: map[string]*exec.Cmd{}}, nil
}

func (s *system) program(name string) string { return filepath.Join(s.bin, name) }
func (s *system) conf(name string) string    { return filepath.Join(s.dir, name, "etc") }
func (s *system) root(name string) string    { return filepath.Join(s.dir, name, "root") }
func (s *system) address() string            { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// keyFile is where the master keeps the key of a minion.
func (s *system) keyFile(state, id string) string {
	return filepath.Join(s.root("master"), "pki", state, id)
}

// configure writes the configuration of a daemon: its places, and the settings
// given; everything else has its default.
func (s *system) configure(name, file, settings string) error {
	if err := os.MkdirAll(s.conf(name), 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("root_dir: %s\npki_dir: pki\n%s", s.root(name), settings)
	return os.WriteFile(filepath.Join(s.conf(name), file), []byte(text), 0o644)
}

// startMaster starts the master. It is not waited for: minions come back until it
// is there.
func (s *system) startMaster() error {
	if err := s.configure("master", "master", fmt.Sprintf("interface: 127.0.0.1\nret_port: %d\npeer: {.*: [test.ping]}\n", s.port)); err != nil {
		return err
	}
	cmd, err := s.launch("master", s.program("salt-master"), "-c", s.conf("master"))
	s.cmd["master"] = cmd
	return err
}

// admit puts a key among the accepted ones, as somebody who prepares minions does.
func (s *system) admit(id string, key *pki.PrivateKey) error {
	return os.WriteFile(s.keyFile("minions", id), key.Public().PEM(), 0o644)
}

// startMinion starts a minion with a new key and waits until the master has seen
// it.
func (s *system) startMinion(ctx context.Context, id string) error {
	if err := s.configure(id, "minion", fmt.Sprintf("id: %s\nmaster: 127.0.0.1\nmaster_port: %d\n", id, s.port)); err != nil {
		return err
	}
	cmd, err := s.launch(id, s.program("salt-minion"), "-c", s.conf(id))
	if err != nil {
		return err
	}
	s.cmd[id] = cmd
	return until(ctx, "the key of "+id, 10*time.Millisecond, func() (bool, error) { return exists(s.keyFile("minions_pre", id)) })
}

func (s *system) accept(ctx context.Context, id string) error {
	_, err := once(ctx, s.program("salt-key"), "-c", s.conf("master"), "-y", "-a", id)
	return err
}

// answered waits for the first answer of a minion.
func (s *system) answered(ctx context.Context, id string) error {
	return until(ctx, "an answer of "+id, time.Millisecond, func() (bool, error) {
		_, err := once(ctx, s.salt(id, "test.ping")...)
		return err == nil, nil
	})
}

func (s *system) salt(words ...string) []string {
	return append([]string{s.program("salt"), "-c", s.conf("master")}, words...)
}

func (s *system) saltCall(id string, words ...string) []string {
	return append([]string{s.program("salt-call"), "-c", s.conf(id)}, words...)
}

// bare is the same with nothing but NATS: a server with two responders, and a
// second server that is its client, as a minion's is the master's.
type bare struct {
	daemons
	bin, address, local string
	server              *exec.Cmd
}

func startBare(bin, dir string) (*bare, error) {
	b := &bare{daemons: daemons{dir: dir}, bin: bin}
	if err := b.start(); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

func (b *bare) start() (err error) {
	program := filepath.Join(b.bin, "bareserver")
	if b.server, b.address, err = b.startTalking(program, b.store()); err != nil {
		return err
	}
	if err := b.identify(); err != nil {
		return err
	}
	for _, subject := range []string{"job.one", "job.two"} {
		if _, _, err := b.startTalking(filepath.Join(b.bin, "bare"), "respond", "tls://"+b.address, subject); err != nil {
			return err
		}
	}
	_, b.local, err = b.startTalking(program, filepath.Join(b.dir, "local"), "tls://"+b.address)
	return err
}

// store is the folder of the first server, which puts its certificate there.
func (b *bare) store() string { return filepath.Join(b.dir, "bare") }

// identify puts a key and its certificate beside the server's, for clients that come
// over TLS.
func (b *bare) identify() error {
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		return err
	}
	certificate, err := key.Certificate("client")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(b.store(), "client.key"), key.PEM(), 0o600),
		os.WriteFile(filepath.Join(b.store(), "client.pem"), pki.CertificatePEM(certificate), 0o600))
}

// secure is the command of a client that is known by its key, and knows the server
// by its own.
func (b *bare) secure(subjects ...string) []string {
	return append([]string{filepath.Join(b.bin, "bare"), "secure", "tls://" + b.address, b.store()}, subjects...)
}

func (b *bare) command(verb, address string, subjects ...string) []string {
	return append([]string{filepath.Join(b.bin, "bare"), verb, "nats://" + address}, subjects...)
}
