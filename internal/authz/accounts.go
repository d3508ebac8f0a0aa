package authz

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/auth"
	"github.com/brinebus/brine/internal/salt"
)

// accounts are those of api_user on this machine: their programs have connections for each user whom they log in.
// They are looked up beforehand and not for a connection: a directory server may be slow, and anybody on this
// machine can open connections.
type accounts struct {
	names []salt.UserName
	users *auth.Users
	uids  atomic.Pointer[map[salt.UserName]uint32] // of those that were found
}

// accountsEvery is the pause between two look-ups: the account may be made, or its directory server reached, later.
const accountsEvery = time.Minute

func newAccounts(users *auth.Users, names []string) *accounts {
	a := &accounts{users: users}
	for _, text := range names {
		if name, err := salt.ParseUserName(text); err == nil { // client:NAME is none of this machine
			a.names = append(a.names, name)
		}
	}
	a.uids.Store(&map[salt.UserName]uint32{})
	return a
}

// AccountsBringOthers returns what reports whether an account of this machine is one of api_user, without waiting;
// nil if there can be none.
func (a *Authorizer) AccountsBringOthers() func(uid uint32) bool {
	if len(a.accounts.names) == 0 {
		return nil
	}
	return a.accounts.have
}

func (a *accounts) have(uid uint32) bool {
	for _, one := range *a.uids.Load() {
		if one == uid {
			return true
		}
	}
	return false
}

// KeepAccounts looks up the accounts of api_user until ctx ends.
func (a *Authorizer) KeepAccounts(ctx context.Context) {
	if len(a.accounts.names) == 0 {
		return
	}
	tick := time.NewTicker(accountsEvery)
	defer tick.Stop()
	for {
		a.accounts.lookUp(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// lookUp looks them up. One that is not found is what it was: perhaps its directory server does not answer.
func (a *accounts) lookUp(ctx context.Context) {
	uids, before := map[salt.UserName]uint32{}, *a.uids.Load()
	for _, name := range a.names {
		if uid := a.users.ID(ctx, name); uid >= 0 {
			uids[name] = uint32(uid)
		} else if uid, known := before[name]; known {
			uids[name] = uid
		} else if uid, err := strconv.ParseUint(string(name), 10, 32); err == nil { // the name of a uid that has no other
			uids[name] = uint32(uid)
		}
	}
	a.uids.Store(&uids)
}
