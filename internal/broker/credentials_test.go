package broker_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// TestCredentialsOfOthersAreRefused: a seed that another user may know, or has chosen, is not used.
func TestCredentialsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "seed")
	if _, err := broker.ReadCredentials(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
	if _, err := broker.EnsureCredentials(file); err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		if _, err := broker.ReadCredentials(file); !errors.Is(err, pki.ErrUnsafe) || !strings.Contains(err.Error(), file) || salt.Hint(err) == "" {
			t.Errorf("%s: %v, hint %q", what, err, salt.Hint(err))
		}
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	refused("a group may read it")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := broker.ReadCredentials(file); err != nil {
		t.Errorf("its mode is 600: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	if err := os.Chown(file, 4242, -1); err != nil {
		t.Fatal(err)
	}
	refused("it is of another user")
}

// TestASeedIsMadeOnlyWhereNoneIsNamed: a new one locks out whoever uses the servers already, if their operators
// take it over.
func TestASeedIsMadeOnlyWhereNoneIsNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "seed")
	var made []string
	find := func(named bool) error {
		_, err := broker.FindCredentials(file, named, func(file string) { made = append(made, file) })
		return err
	}
	if err := find(true); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "nats_creds") || !strings.Contains(salt.Hint(err), "check the path") {
		t.Errorf("a file that is named and not there: %v, hint %q", err, salt.Hint(err))
	}
	if err := broker.CheckCredentials(file, true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("check: %v", err)
	}
	if err := broker.CheckCredentials(file, false); err != nil {
		t.Errorf("check of one that is made: %v", err)
	}
	if _, err := os.Stat(file); len(made) > 0 || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%q were made, %v", made, err)
	}
	if err := find(false); err != nil || len(made) != 1 || made[0] != file {
		t.Errorf("%v; %q were made", err, made)
	}
	if err := errors.Join(find(true), find(false), broker.CheckCredentials(file, true)); err != nil || len(made) != 1 {
		t.Errorf("the second time: %v; %q were made", err, made)
	}
}

// TestWhatToDoAboutAFileWithoutASeed: one that is named is not made again if it is removed.
func TestWhatToDoAboutAFileWithoutASeed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(file, []byte("no seed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for named, want := range map[bool]string{true: "or leave nats_creds out", false: "or remove it"} {
		_, err := broker.FindCredentials(file, named, nil)
		for what, err := range map[string]error{"start": err, "check": broker.CheckCredentials(file, named)} {
			if err == nil || !strings.Contains(err.Error(), "there is no seed of a user in "+file) || !strings.Contains(salt.Hint(err), want) {
				t.Errorf("%s, named %v: %v, hint %q, want %q", what, named, err, salt.Hint(err), want)
			}
		}
	}
}
