// Package authztest makes decisions for tests of what comes after them.
package authztest

import (
	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/internal/seal"
)

// Allow is to allow what the check is for.
func Allow(check string) decision.Decision { return seal.Allow(check) }

// Refuse is a refusal, with what the principal is told.
func Refuse(err error) decision.Decision { return seal.Refuse(err) }
