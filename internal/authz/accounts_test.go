package authz

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/auth"
)

func withAccounts(names ...string) *Authorizer {
	return &Authorizer{accounts: newAccounts(new(auth.Users), names)}
}

// TestAccountsAreLookedUpBeforehand: no connection waits for the system's name service, or makes it work. An account
// that is not found for the moment stays what it was.
func TestAccountsAreLookedUpBeforehand(t *testing.T) { // not parallel: it sets the environment
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	service := func(answer string) {
		t.Helper()
		text := "#!/bin/sh\necho \"$@\" >> " + asked + "\n" + answer + "\n"
		if err := os.WriteFile(filepath.Join(dir, "getent"), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	questions := func() int {
		text, err := os.ReadFile(asked)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
	t.Setenv("PATH", dir)
	service("echo brine-test-api:x:4000999:4000999::/:/bin/false")
	a := withAccounts("brine-test-api", "client:web")
	brings := a.AccountsBringOthers()
	if brings(4_000_999) {
		t.Error("it was not looked up yet")
	}
	a.accounts.lookUp(t.Context())
	before := questions()
	if before != 1 {
		t.Errorf("the name service got %d questions for one account", before)
	}
	for uid := uint32(4_000_000); uid < 4_001_000; uid++ {
		if brings(uid) != (uid == 4_000_999) {
			t.Errorf("uid %d: %v", uid, brings(uid))
		}
	}
	service("exit 2")
	a.accounts.lookUp(t.Context())
	if !brings(4_000_999) {
		t.Error("the account is forgotten")
	}
	if n := questions(); n > before+1 {
		t.Errorf("connections have asked the name service %d times", n-before-1)
	}
}

// TestAccountsWithoutNames: where api_user names no account of this machine, no connections are kept for any. A uid
// without a name is named by its number.
func TestAccountsWithoutNames(t *testing.T) {
	if withAccounts("client:web").AccountsBringOthers() != nil {
		t.Error("there may be accounts")
	}
	a := withAccounts("4000998")
	a.accounts.lookUp(t.Context())
	if !a.AccountsBringOthers()(4_000_998) {
		t.Error("a number is no name")
	}
}
