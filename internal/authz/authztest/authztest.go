// Package authztest makes decisions for tests of code that needs one.
package authztest

import (
	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/internal/seal"
)

// Allow returns a decision that allows what the check is for.
func Allow(check string) decision.Decision { return seal.Allow(check) }

// Refuse returns a refusal with the error for the principal.
func Refuse(err error) decision.Decision { return seal.Refuse(err) }
