package eauth

import (
	"context"
	"errors"
	"fmt"
)

// sharedSecret accepts the one secret of the configuration, with any user name.
type sharedSecret struct{ secret string }

func newSharedSecret(secret string) (Backend, error) {
	if secret == "" {
		return nil, errors.New("sharedsecret is not set: without it nobody could log in")
	}
	return sharedSecret{secret}, nil
}

// Verify implements Backend.
func (b sharedSecret) Verify(ctx context.Context, user string, p Proof) (Account, error) {
	if !same(p.Secret, b.secret) {
		return Account{}, fmt.Errorf("%w: it is not the secret", ErrRefused)
	}
	return b.Look(ctx, user)
}

// Look implements Backend. There are no accounts; the version is that of the secret.
func (b sharedSecret) Look(_ context.Context, user string) (Account, error) {
	return Account{Name: user, Version: b.secret}, nil
}
