package mirror

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/salt"
)

// Member is this master as the other one knows it.
type Member struct {
	Journal string // its name
	Dir     string // of its journal
	rule    member.Rule
	tls     *tls.Config
}

// NewMember returns this master as a member, which others know by its signed key, if it is
// configured; otherwise nil. dir is that of the journal.
func NewMember(cfg *config.Master, own keyring.Own, dir, version string, log *slog.Logger) (*Member, error) {
	if cfg.JournalMirror == "" {
		return nil, nil
	}
	if err := check(cfg); err != nil {
		return nil, config.Mistake(err)
	}
	name, err := journal.Name(dir)
	if err != nil {
		return nil, fmt.Errorf("name the journal: %w", err)
	}
	rule, err := member.LoadRule(member.NewCard("", name, version), own.Public(), cfg.PKIDir, cfg.MasterSignKeyName)
	if err != nil {
		return nil, err
	}
	m := &Member{Journal: name, Dir: dir, rule: rule}
	m.tls, err = rule.TLS(own.PrivateKey, own.Signature, refused(log))
	return m, err
}

// Check finds mistakes in the settings of a mirror.
func Check(cfg *config.Master) error {
	if cfg.JournalMirror == "" {
		return nil
	}
	return check(cfg)
}

func check(cfg *config.Master) error {
	if !cfg.MasterSignPubkey {
		return salt.WithHint(errors.New("journal_mirror is set, but master_sign_pubkey is not: the other master knows this one by its signed key"),
			"set master_sign_pubkey: True, with the master_sign pair that both masters share")
	}
	if cfg.JournalMirrorPort == cfg.RetPort {
		return salt.WithHint(fmt.Errorf("journal_mirror_port: %d is that of minions (ret_port)", cfg.RetPort), "give it another one: 4507 is the usual one")
	}
	host, port, err := net.SplitHostPort(cfg.JournalMirror)
	if err != nil || host == "" || strings.ContainsAny(host, " \t/@,") {
		return salt.WithHint(fmt.Errorf("journal_mirror: %q is not a host:port", cfg.JournalMirror), "name the other master and its journal_mirror_port, as in 172.16.0.11:4507")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("journal_mirror: %q is not a port", port)
	}
	if host == cfg.Interface && port == strconv.Itoa(cfg.JournalMirrorPort) {
		return salt.WithHint(fmt.Errorf("journal_mirror: %s is this master", cfg.JournalMirror), "name the other one")
	}
	return nil
}

// Links returns the options for links from the other master, at the address of cfg; nil for
// none.
func (m *Member) Links(cfg *config.Master) *broker.LinkOptions {
	if m == nil {
		return nil
	}
	return &broker.LinkOptions{
		Listen: net.JoinHostPort(cfg.Interface, strconv.Itoa(cfg.JournalMirrorPort)), TLS: m.tls, Journal: m.Journal,
		Judge: func(c *x509.Certificate) (string, error) {
			who, err := m.rule.Judge(c)
			return who.Name, err
		},
	}
}

// refused logs refusals at either end of a link, limited for each reason.
func refused(log *slog.Logger) func(error) {
	var throttle logging.Throttle
	return func(err error) {
		args := []any{"err", err}
		if hint := salt.Hint(err); hint != "" {
			args = append(args, "hint", hint)
		}
		throttle.Log(log, slog.LevelWarn, "links", maxRefused, "a link was refused", args...)
	}
}

// maxRefused is how many refusals are logged in a minute, since anybody can cause them.
const maxRefused = 5
