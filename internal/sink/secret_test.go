package sink

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func writeSecret(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadSecret(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name, text string
		mode       os.FileMode
		want       string // "" where it is refused
		mistake    string
	}{
		{"alone", "geheim\n", 0o600, "geheim", ""},
		{"read only", "geheim", 0o400, "geheim", ""},
		{"with blanks", " a b \r\n", 0o600, " a b ", ""},
		{"for the group", "geheim", 0o640, "", "others may use it"},
		{"for all", "geheim", 0o604, "", "others may use it"},
		{"two lines", "a\nb\n", 0o600, "", "one line"},
		{"empty", "\n", 0o600, "", "one line"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(dir, test.name)
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, test.mode); err != nil {
				t.Fatal(err)
			}
			got, err := readSecret(path)
			if got != test.want || (err == nil) != (test.mistake == "") || err != nil && !strings.Contains(err.Error(), test.mistake) {
				t.Errorf("readSecret = %q, %v, want %q, %q", got, err, test.want, test.mistake)
			}
			if err != nil && strings.Contains(err.Error(), "geheim") {
				t.Errorf("the error %q shows the secret", err)
			}
		})
	}
}

func TestSecretsInOddPlaces(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "missing"), dir, pipe} {
		if got, err := readSecret(path); err == nil {
			t.Errorf("readSecret(%s) = %q", path, got)
		}
	}
}
