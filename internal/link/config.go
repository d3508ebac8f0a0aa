package link

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"brine/internal/config"
	"brine/internal/event"
	"brine/internal/pki"
)

// usualPing is how often a silent connection is tried out where the configuration
// does not say.
const usualPing = 10 * time.Second

// FromConfig describes an attempt at the master that the configuration names like
// this, as it wants it. It reads the verification key.
func FromConfig(cfg *config.Minion, key *pki.PrivateKey, name string, log *slog.Logger) (Options, error) {
	address := WithPort(name, cfg.MasterPort)
	o := Options{
		Address: address, Name: name, Source: cfg.SourceAddress, OnlyIPv4: cfg.IPv6 != nil && !*cfg.IPv6, ID: cfg.ID, Key: key, PinFile: pinFile(cfg, address), Timeout: cfg.AuthTimeout, PingInterval: usualPing, Log: log,
		Trust: Trust{
			Finger: cfg.MasterFinger, FingerHash: cfg.HashType, OpenMode: cfg.OpenMode, Verify: cfg.VerifyMasterPubkeySign,
			VerifyFile: filepath.Join(cfg.PKIDir, cfg.MasterSignKeyName+".pub"), SHA1: cfg.SigningAlgorithm == "PKCS1v15-SHA1",
		},
	}
	if cfg.MasterAliveInterval > 0 {
		o.PingInterval = cfg.MasterAliveInterval * 2 / 3 // a loss is seen after two of them, which leaves time for the next master
	}
	if !o.Trust.Verify {
		return o, nil
	}
	var err error
	o.Trust.VerifyKey, err = pki.LoadPublic(o.Trust.VerifyFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the judgement of the master says so, with the remedy
	}
	return o, err
}

// pinFile is where the master's key is kept. Masters of a list have keys of their
// own: each is pinned by its address, unless signatures make pinning needless and
// only one is in use at a time.
func pinFile(cfg *config.Minion, address string) string {
	if !cfg.MasterIsList || len(cfg.Master) < 2 || cfg.VerifyMasterPubkeySign && !cfg.AllMasters() {
		return filepath.Join(cfg.PKIDir, "minion_master.pub")
	}
	return filepath.Join(cfg.PKIDir, "minion_master."+event.Escape(address)+".pub")
}

// WithPort adds the port to a host that has none. An IPv6 address may stand with
// or without brackets.
func WithPort(host string, port int) string {
	if h, p, err := net.SplitHostPort(host); err == nil && h != "" && p != "" {
		return net.JoinHostPort(h, p)
	}
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}
