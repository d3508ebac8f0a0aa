package eauth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pam"
	"github.com/brinebus/brine/internal/salt"
)

// pamBackend verifies the users of the system through PAM.
type pamBackend struct {
	helper  pam.Helper
	service string
	sys     System
}

// pamDirs are the directories with the files of PAM services.
var pamDirs = []string{"/etc/pam.d", "/usr/lib/pam.d", "/usr/share/pam.d"}

// newPAM uses only the service in the configuration: a user who could choose the service could
// choose one that accepts them.
func newPAM(cfg *config.Master, sys System) (Backend, error) {
	if _, err := os.Stat(sys.PAMHelper); err != nil {
		return nil, salt.WithHint(fmt.Errorf("the program that talks to PAM is not there: %w", err), "install salt-pam beside salt-master")
	}
	if !isService(cfg.PAMService) {
		return nil, salt.WithHint(fmt.Errorf("there is no PAM service %s", cfg.PAMService), "auth.pam.service names a file in /etc/pam.d")
	}
	return &pamBackend{pam.Helper(sys.PAMHelper), cfg.PAMService, sys}, nil
}

func isService(name string) bool {
	for _, dir := range pamDirs {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// Verify implements Backend.
func (b *pamBackend) Verify(ctx context.Context, user string, p Proof) (Account, error) {
	if p.Secret == "" {
		return Account{}, fmt.Errorf("%w: the password is empty", ErrRefused)
	}
	return b.ask(ctx, pam.Question{Service: b.service, User: user, Password: p.Secret})
}

// Look implements Backend.
func (b *pamBackend) Look(ctx context.Context, user string) (Account, error) {
	return b.ask(ctx, pam.Question{Service: b.service, User: user, AccountOnly: true})
}

// ask calls PAM, and asks the system for what PAM does not return: the groups, and whether the
// password was locked or changed, which the account step does not check.
func (b *pamBackend) ask(ctx context.Context, q pam.Question) (Account, error) {
	answer, err := b.helper.Ask(ctx, q)
	switch {
	case err != nil:
		return Account{}, err
	case answer.Broken:
		return Account{}, errors.New(answer.Step + ": " + answer.Reason)
	case !answer.Allowed:
		return Account{}, fmt.Errorf("%w: PAM service %s, %s: %s", ErrRefused, b.service, answer.Step, answer.Reason)
	}
	name, err := salt.ParseUserName(answer.User)
	if err != nil {
		return Account{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	version, err := b.sys.Shadow(ctx, name)
	if err != nil {
		return Account{}, err
	}
	return Account{Name: string(name), Groups: b.sys.Groups(ctx, name), Version: version}, nil
}
