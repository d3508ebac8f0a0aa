package saltkey_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/test/documented"
)

// withoutSignature are the cases in which salt-key ends with 1, and Salt's with 0.
var withoutSignature = map[string]string{
	"signature-0296": noSignature, "signature-0297": noSignature, "signature-0298": noSignature, "signature-0303": noSignature,
}

const noSignature = "salt-key --gen-signature ends with 1 when it has made no signature; Salt says why and ends with 0"

// TestGenSignatureAsSalt leaves the files that Salt leaves, and ends as it does, but for what
// is listed.
func TestGenSignatureAsSalt(t *testing.T) {
	text, err := os.ReadFile("testdata/gen_signature.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			ID                 string
			Files, Argv, After []string
			Existing, Stdout   string
			RC                 int
			Config             map[string]string
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	documented.Differences(t, noSignature)
	unseen := maps.Clone(withoutSignature)
	var count documented.Comparison
	for _, c := range file.Cases {
		var settings []string
		for name, v := range c.Config {
			settings = append(settings, name+": "+v)
		}
		m := newMaster(t, settings...)
		for _, name := range []string{"master", "master_sign", "other"} {
			if _, _, err := pki.EnsurePair(m.pki, name, pki.Ed25519, 0); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range files(t, m.pki) {
			if !slices.Contains(c.Files, name) {
				m.must(os.Remove(filepath.Join(m.pki, name)))
			}
		}
		if c.Existing != "" {
			m.must(os.WriteFile(filepath.Join(m.pki, c.Existing), []byte("old"), 0o644))
		}
		args := slices.Clone(c.Argv)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "@", m.pki)
		}
		want := c.RC
		if _, listed := unseen[c.ID]; listed {
			want = cli.Failed
		}
		delete(unseen, c.ID)
		r := m.run("", args...)
		if r.code != want {
			t.Errorf("%s: exit code %d, want %d; Salt ended with %d and printed %q\n%s%s", c.ID, r.code, want, c.RC, c.Stdout, r.out, r.err)
		}
		left := files(t, m.pki)
		if !slices.Equal(left, c.After) {
			t.Errorf("%s: left %v, Salt %v", c.ID, left, c.After)
		}
		count.Count(documented.Refusal(r.code == c.RC && slices.Equal(left, c.After), r.code == cli.OK, c.RC == 0))
		if c.Existing == "" {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(m.pki, c.Existing)); err != nil || string(b) != "old" {
			t.Errorf("%s: the file that was there is %q, %v", c.ID, b, err)
		}
	}
	for id := range unseen {
		t.Errorf("%s is listed as different, and is not a case", id)
	}
	count.Stands(t, "`salt-key --gen-signature`")
}

// files are the names of the files, and no directories, in dir.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}
