package structure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExamplesInDocs: what a document shows is what a test runs.
func TestExamplesInDocs(t *testing.T) {
	for doc, example := range map[string]string{"doc/clients.md": "scripts/events/client.js"} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(doc)))
		if err != nil {
			t.Fatal(err)
		}
		code, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(example)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\n"+string(code)+"```\n") {
			t.Errorf("%s does not show %s as it is", doc, example)
		}
	}
}
