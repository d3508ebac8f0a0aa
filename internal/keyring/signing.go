package keyring

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// What minions do when a master begins to sign its key, and where the way without a loss is described.
const (
	signingIsNew  = "minions without verify_master_pubkey_sign: True, or without the public half of the signing key in their pki_dir, refuse it, and get no jobs until they have both"
	signingGuide  = "'Introducing signatures while minions are in use' in doc/masters.md"
	signerIsOther = "minions that verify signatures with the old one refuse it"
	signerGuide   = "'A new signing pair' in doc/masters.md"
)

// SigningChange returns what minions of this master, which shows own now, must be prepared for before it
// starts with cfg: that it signs its key, or with another signing key. nil is nothing.
func (o Own) SigningChange(cfg *config.Master, minions int) error {
	if minions == 0 || !cfg.MasterSignPubkey {
		return nil
	}
	if o.Signature == nil {
		return salt.WithHint(fmt.Errorf("this master does not sign its key yet, and will from its next start on: %s. It has %s", signingIsNew, salt.Count(minions, "minion")),
			"unless all of them are prepared, do this first: "+signingGuide)
	}
	signer, err := pki.LoadPublic(signerFile(cfg))
	if err != nil || signer.VerifyPublic(o.Public(), o.Signature) == nil || signer.VerifyPublicSHA1(o.Public(), o.Signature) == nil {
		return nil // a missing key is for whoever checks the files
	}
	return salt.WithHint(fmt.Errorf("this master will sign its key with another signing key from its next start on, %s: %s. It has %s", signer.SHA256(), signerIsOther, salt.Count(minions, "minion")),
		"do this first: "+signerGuide)
}

func signerFile(cfg *config.Master) string {
	return filepath.Join(cfg.PKIDir, cfg.MasterSignKeyName+".pub")
}

// unsigned is what the file of the latest start contains if the master did not sign its key.
const unsigned = "none"

// TellSigning logs a warning if this start shows minions another kind of signature than the latest one,
// which is recorded in cachedir: both sides have to agree, and minions that are not prepared refuse the
// master. A start without a record says nothing, since most masters have signed from the beginning or never.
func TellSigning(cfg *config.Master, own Own, minions int, log *slog.Logger) {
	path := filepath.Join(cfg.CacheDir, "signing_key")
	now := unsigned
	if own.Signature != nil {
		signer, err := pki.LoadPublic(signerFile(cfg))
		if err != nil {
			log.Warn("it is not known whether minions have the signing key", "err", err)
			return
		}
		now = signer.SHA256()
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("it is not known whether this master has signed its key before", "err", err)
	}
	before := strings.TrimSpace(string(text))
	if before == now {
		return
	}
	if before != "" && minions > 0 {
		tellChange(before, now, minions, log)
	}
	if err := atomicfile.Write(path, []byte(now+"\n"), 0o600); err != nil {
		log.Warn("it cannot be recorded that this master signs its key, or does not", "err", err)
	}
}

func tellChange(before, now string, minions int, log *slog.Logger) {
	switch {
	case before == unsigned:
		log.Warn("this master signs its key from now on: "+signingIsNew, "minions", minions, "signing_key", now,
			"hint", "if they are not prepared, set master_sign_pubkey: False and restart this master: they come back. Then follow "+signingGuide)
	case now == unsigned:
		log.Warn("this master does not sign its key any more: minions with verify_master_pubkey_sign: True refuse it, unless they have allow_unsigned_master: True", "minions", minions, "signing_key", before,
			"hint", "set master_sign_pubkey: True again and restart this master: they come back")
	default:
		log.Warn("this master signs its key with another signing key from now on: "+signerIsOther, "minions", minions, "signing_key", now, "before", before,
			"hint", "if they are not prepared, set master_sign_key_name to the old pair and restart this master: they come back. Then follow "+signerGuide)
	}
}
