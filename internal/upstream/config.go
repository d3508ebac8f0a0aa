package upstream

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// usualPing is how often a silent connection is pinged if the configuration does not say.
const usualPing = 10 * time.Second

// FromConfig returns the options for an attempt at the master name, according to the
// configuration. It reads the verification key; if that is unusable, the check of the master
// fails.
func FromConfig(cfg *config.Minion, key *pki.PrivateKey, name string, log *slog.Logger) Options {
	address := WithPort(name, cfg.MasterPort)
	o := Options{
		Address: address, Name: name, Source: cfg.SourceAddress, OnlyIPv4: cfg.IPv6 != nil && !*cfg.IPv6, ID: cfg.ID, Key: key, PinFile: pinFile(cfg, address), Timeout: cfg.AuthTimeout, PingInterval: usualPing, Log: log,
		Trust: Trust{
			Fingers: cfg.MasterFinger, FingerHash: cfg.HashType, FirstUse: firstUses[cfg.MasterTrustOnFirstUse], OpenMode: cfg.OpenMode,
			Verify: cfg.VerifyMasterPubkeySign, AllowUnsigned: cfg.AllowUnsignedMaster,
			VerifyFile: filepath.Join(cfg.PKIDir, cfg.MasterSignKeyName+".pub"), SHA1: cfg.SigningAlgorithm == "PKCS1v15-SHA1",
		},
	}
	o.Servers = Servers{Addresses: cfg.NATSServers, Trust: pki.ServerPins{Fingers: cfg.NATSFinger, CAFile: cfg.NATSCA}}
	if cfg.MasterAliveInterval > 0 {
		o.PingInterval = cfg.MasterAliveInterval * 2 / 3 // a loss is noticed after two pings, which leaves time for the next master
	}
	if o.Trust.Verify {
		o.Trust.VerifyKey, o.Trust.VerifyErr = loadVerifyKey(o.Trust.VerifyFile)
	}
	if o.Trust.Verify && !cfg.AllMasters() && !isPlain(o.PinFile) {
		o.LatestFile = filepath.Join(cfg.PKIDir, plainPin) // as in Salt
	}
	return o
}

// firstUses are the values of master_trust_on_first_use. An unknown value, which the
// configuration refuses, would be the strict FirstOnly.
var firstUses = map[string]FirstUse{"first": FirstOnly, "each": EachMaster, "never": NeverFirst}

// loadVerifyKey reads the key that signatures are checked with. If the file is missing, it
// returns the zero key and no error.
func loadVerifyKey(file string) (pki.PublicKey, error) {
	key, err := pki.LoadPublic(file)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return key, nil
	case errors.Is(err, pki.ErrWantedPublic):
		return pki.PublicKey{}, salt.WithHint(fmt.Errorf("%w: the verification key %s is a private key. If it is the signing key of the masters, whoever can read this minion's files can pretend to be a master", ErrSignature, file),
			"remove it here and put the public half of the signing pair there; make a new pair if others may have read it")
	}
	return pki.PublicKey{}, salt.WithHint(fmt.Errorf("%w: the verification key cannot be used: %w", ErrSignature, err),
		"copy the public half of the masters' signing pair to "+file)
}

// pinFile returns the file with the key of the master at this address. Each master of a list is
// pinned by its address, and stays so if it later is the only one.
func pinFile(cfg *config.Minion, address string) string {
	file := filepath.Join(cfg.PKIDir, "minion_master."+event.Escape(address)+".pub")
	if cfg.MasterIsList && len(cfg.Master) > 1 {
		return file
	}
	if _, err := os.Lstat(file); err == nil {
		return file
	}
	return filepath.Join(cfg.PKIDir, plainPin)
}

// WithPort appends the port to a host without one. An IPv6 address may have brackets or not.
func WithPort(host string, port int) string {
	if h, p, err := net.SplitHostPort(host); err == nil && h != "" && p != "" {
		return net.JoinHostPort(canonical(h), p)
	}
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	return net.JoinHostPort(canonical(host), strconv.Itoa(port))
}

// canonical writes an address in the usual way; a name stays as it is.
func canonical(host string) string {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.String()
	}
	return host
}
