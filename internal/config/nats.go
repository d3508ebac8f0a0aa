package config

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// checkNATS checks the settings of NATS servers that others run.
func (c *Common) checkNATS() error {
	if len(c.NATSServers) == 0 {
		return nil
	}
	for _, s := range c.NATSServers {
		if err := checkServer(s); err != nil {
			return c.natsError("nats_servers", err, "name each server with its port for clients, as nats1.example.com:4222")
		}
	}
	if len(c.NATSFinger) == 0 && c.NATSCA == "" {
		return c.natsError("nats_servers", errors.New("neither nats_finger nor nats_ca is set: anybody could pretend to be these servers"),
			"set nats_finger to what 'openssl x509 -noout -fingerprint -sha256 -in CERTIFICATE' prints for each server, without the words before the digits")
	}
	for _, f := range c.NATSFinger {
		if b, err := hex.DecodeString(strings.ReplaceAll(f, ":", "")); err != nil || len(b) != 32 {
			return c.natsError("nats_finger", fmt.Errorf("%q is not a SHA-256 fingerprint", f), "write its 64 hexadecimal digits, with or without colons")
		}
	}
	return nil
}

func checkServer(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || strings.ContainsAny(host, " \t/@,") {
		return fmt.Errorf("%q is not a host:port", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q has no port from 1 to 65535", s)
	}
	return nil
}

func (c *Common) natsError(key string, err error, hint string) error {
	return &Error{File: c.ConfigFile, Key: key, Err: salt.WithHint(err, hint)}
}

// RequireNATS returns an error where no NATS servers are set, for what makes sense with these only.
func (m *Master) RequireNATS() error {
	if len(m.NATSServers) > 0 {
		return nil
	}
	return Mistake(m.natsError("nats_servers", errors.New("it is not set: there are no NATS servers to configure"), "set nats_servers and nats_finger, with which the master is started; doc/nats.md has the steps"))
}

// NATSSeed is the file with the secret for nats_servers.
func (m *Master) NATSSeed() string {
	return cmp.Or(m.NATSCreds, filepath.Join(m.PKIDir, "master_nats.seed"))
}

// checkNATS checks what only a master has beside them.
func (m *Master) checkNATS() error {
	if err := m.checkJetStream(); err != nil {
		return err
	}
	if err := m.Common.checkNATS(); err != nil || len(m.NATSServers) == 0 {
		return err
	}
	if m.RemoteLogin {
		return m.natsError("remote_login", errors.New("users of other machines reach a master by its own port, which it does not open with nats_servers"),
			"leave one of the two settings out; salt-api on the machine of the master works with both")
	}
	return nil
}

// checkJetStream checks the settings of a journal at NATS servers that others run.
func (m *Master) checkJetStream() error {
	switch {
	case !m.NATSJetStream:
		return nil
	case len(m.NATSServers) == 0:
		return m.natsError("nats_jetstream", errors.New("there are no nats_servers whose JetStream could be used"), "name them, or leave nats_jetstream out")
	case m.NATSCopies%2 == 0:
		return m.natsError("nats_copies", fmt.Errorf("%d copies survive the loss of as many servers as %d do", m.NATSCopies, m.NATSCopies-1), "set 1, 3 or 5")
	case m.JournalSync == "always":
		return m.natsError("journal_sync", errors.New("with nats_jetstream the NATS servers write the files of the journal, and they alone decide when these are synced"), "leave it out, and set sync_interval: always for JetStream in the configuration of these servers")
	case m.JournalMirror != "":
		return m.natsError("journal_mirror", errors.New("a journal in the JetStream of nats_servers has its copies there, and is not mirrored"), "leave one of the two settings out")
	}
	return nil
}

// checkNATS checks what only a minion has beside them.
func (m *Minion) checkNATS() error {
	if err := m.Common.checkNATS(); err != nil || len(m.NATSServers) == 0 {
		return err
	}
	if m.MasterIsList && len(m.Master) > 1 {
		return m.natsError("nats_servers", errors.New("with nats_servers, master is one name: whichever master is at work there answers to it"),
			"name one master; masters that take over from each other share master_sign")
	}
	return nil
}

// idle is a setting that has no effect, and why.
type idle struct{ key, why string }

// idleNATS are the settings of NATS servers that have no effect.
func (c *Common) idleNATS() (list []idle) {
	const why = "without nats_servers"
	if len(c.NATSServers) > 0 {
		return nil
	}
	if len(c.NATSFinger) > 0 {
		list = append(list, idle{"nats_finger", why})
	}
	if c.NATSCA != "" {
		list = append(list, idle{"nats_ca", why})
	}
	return list
}

// idleNATS adds those that only a master has. Without servers, nats_jetstream is a mistake.
func (m *Master) idleNATS() []idle {
	list := m.Common.idleNATS()
	if m.NATSCreds != "" && len(m.NATSServers) == 0 {
		list = append(list, idle{"nats_creds", "without nats_servers"})
	}
	if !m.NATSJetStream && m.NATSCopies != 3 { // a file may have all defaults
		list = append(list, idle{"nats_copies", "without nats_jetstream"})
	}
	return list
}

// idleNATS adds those that only a minion has: they are about how it chooses among masters and reaches one directly.
func (m *Minion) idleNATS() []idle {
	list := m.Common.idleNATS()
	if len(m.NATSServers) == 0 {
		return list
	}
	if m.MasterType == "failover" || m.MasterType == "distributed" {
		list = append(list, idle{"master_type", "with nats_servers"})
	}
	if m.MasterPort != 4506 {
		list = append(list, idle{"master_port", "with nats_servers"})
	}
	return list
}

// idleNATS reports those that are set.
func (l *loader) idleNATS(list []idle) {
	for _, i := range list {
		if e, ok := l.doc.get(i.key); ok && !yamlfile.IsNull(e.value) {
			l.notice(e.file, e.key, "it has no effect "+i.why)
		}
	}
}

// strangeServers finds what is seldom meant: a server that is named twice, and fewer fingerprints than servers.
func (c *Common) strangeServers() {
	servers, fingers := map[string]bool{}, map[string]bool{}
	for _, s := range c.NATSServers {
		if servers[strings.ToLower(s)] {
			c.strange("nats_servers", s+" is there twice")
		}
		servers[strings.ToLower(s)] = true
	}
	for _, f := range c.NATSFinger {
		fingers[strings.ToLower(strings.ReplaceAll(f, ":", ""))] = true
	}
	if n, m := len(servers), len(fingers); m > 0 && m < n && c.NATSCA == "" {
		c.strange("nats_finger", fmt.Sprintf("%d servers, and fewer fingerprints (%d): this is right only if servers share a certificate", n, m))
	}
}
