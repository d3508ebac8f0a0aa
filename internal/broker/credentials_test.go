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
