// Package documented holds the tests that compare with Salt's answers to doc/differences.md: a
// difference that a test allows is one that people are told of, and so are the numbers of equal and
// different answers. It compares nothing itself.
package documented

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Differences fails the test for each reason that doc/differences.md does not have, as it stands.
func Differences(t testing.TB, reasons ...string) {
	t.Helper()
	text, err := os.ReadFile(document(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range missing(string(text), reasons) {
		t.Errorf("doc/differences.md does not have the reason: %s", reason)
	}
}

// missing are the reasons that a text does not have. Where its lines break does not matter.
func missing(text string, reasons []string) (none []string) {
	text = strings.Join(strings.Fields(text), " ")
	for _, reason := range reasons {
		if words := strings.Join(strings.Fields(reason), " "); words == "" || !strings.Contains(text, words) {
			none = append(none, reason)
		}
	}
	return none
}

// document is the page, above the folder of the test.
func document(t testing.TB) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "doc", "differences.md")
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("there is no go.mod above this folder")
		}
		dir = filepath.Dir(dir)
	}
}
