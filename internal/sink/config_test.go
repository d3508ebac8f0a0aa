package sink

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
)

func TestMistakesInAConfiguration(t *testing.T) {
	const file = "file: {path: /tmp/x}"
	tests := []struct{ name, text, want, hint string }{
		{"empty", "", "it is empty", ""},
		{"no YAML", "a: [", ":1:4: the YAML is broken", ""},
		{"a list", "- a", ":1: a map of settings is wanted", ""},
		{"no rules", "name: x", `"rules" is needed`, ""},
		{"empty rules", "rules: {}", "rules: there are 0", ""},
		{"unknown word", "rule:\n  x: {}", ":1: rule: there is no such setting", "rules"},
		{"rule without settings", "rules:\n  x:", ":2: rules.x: a map", ""},
		{"no destination", "rules:\n  x: {tag: a}", ":2: rules.x.to: one destination is needed", ""},
		{"two destinations", "rules:\n  x:\n    to: {" + file + ", sqlite: {path: y}}", ":3: rules.x.to: one destination is needed", ""},
		{"unknown destination", "rules:\n  x:\n    to:\n      mongodb: {}", ":4: rules.x.to.mongodb: there is no such destination; there are: file, graphite", ""},
		{"unknown setting", "rules:\n  x:\n    to:\n      file:\n        path: y\n        rotate: 5", ":6: rules.x.to.file.rotate: there is no such setting", "rotate_size"},
		{"twice", "rules:\n  x: {to: {" + file + "}}\n  x: {to: {" + file + "}}", ":3:3: rules.x: the key is there already, in line 2", ""},
		{"no path", "rules:\n  x:\n    to:\n      file: {keep: 5}", `:4: rules.x.to.file: "path" is needed`, ""},
		{"a number that is none", "rules:\n  x:\n    batch: many\n    to: {" + file + "}", `:3: rules.x.batch: "many" is not a number from 1 to 10000`, ""},
		{"too large", "rules: {x: {batch: 10001, to: {" + file + "}}}", "is not a number from 1 to 10000", ""},
		{"time of an unknown unit", "rules: {x: {wait: 5y, to: {" + file + "}}}", `"5y" is not a time`, ""},
		{"time out of range", "rules: {x: {wait: 2h, to: {" + file + "}}}", "2h is not within", ""},
		{"no size", "rules: {x: {to: {file: {path: y, rotate_size: 5 apples}}}}", "is not a size", ""},
		{"tiny size", "rules: {x: {to: {file: {path: y, rotate_size: 5}}}}", "less than 1024 bytes", ""},
		{"mode for all", "rules: {x: {to: {file: {path: y, mode: '0755'}}}}", "not a mode", ""},
		{"quoted truth", "rules: {x: {to: {file: {path: y, compress: 'yes'}}}}", "true or false", ""},
		{"bad jq", "rules:\n  x:\n    filter: .a |\n    to: {" + file + "}", ":3: rules.x.filter: ", ""},
		{"bad way to match", "rules: {x: {match: maybe, to: {" + file + "}}}", "not a way to match a tag", ""},
		{"bad regex", "rules: {x: {match: regex, tag: '(', to: {" + file + "}}}", "regular expression", ""},
		{"bad since", "rules: {x: {since: yesterday, to: {" + file + "}}}", "not one of now, all", ""},
		{"the same file", "rules:\n  x: {to: {" + file + "}}\n  y: {to: {" + file + "}}", `:3: rules.y: the rule "x" writes to /tmp/x already`, ""},
		{"a password", "rules:\n  x:\n    to:\n      mysql: {database: a, user: b, password: c}", ":4: rules.x.to.mysql.password: a secret must not be", "password_file"},
		{"a token", "rules: {x: {to: {influxdb: {url: 'https://x', points: '.', token: c}}}}", "token: a secret must not be", "token_file"},
		{"a password in an address", "rules: {x: {to: {webhook: {url: 'https://u:geheim@x/'}}}}", "a secret must not be in the address", ""},
		{"no web address", "rules: {x: {to: {webhook: {url: 'ftp://x/'}}}}", "https:// or http://", ""},
		{"two addresses", "rules: {x: {to: {webhook: {url: 'https://x/', url_file: y}}}}", "not both", ""},
		{"name of a table", "rules: {x: {to: {sqlite: {path: y, table: 'a; drop'}}}}", "not the name of a table", ""},
		{"TLS for a socket", "rules: {x: {to: {postgresql: {host: /run/x, database: a, user: b, ca_file: c}}}}", "settings for TLS, and no TLS", ""},
		{"half a certificate", "rules: {x: {to: {webhook: {url: 'https://x/', cert_file: c}}}}", "belong together", ""},
		{"insecure with authority", "rules: {x: {to: {webhook: {url: 'https://x/', ca_file: c, insecure: true}}}}", "useless", ""},
		{"no points", "rules: {x: {to: {influxdb: {url: 'https://x/'}}}}", `"points" is needed`, ""},
		{"no metrics", "rules: {x: {to: {graphite: {host: x}}}}", `"metrics" is needed`, ""},
		{"a name with a slash", "name: a/b\nrules: {x: {to: {" + file + "}}}", ":1: name: ", ""},
		{"merge key", "rules: {w: &a {to: {" + file + "}}, x: {<<: *a}}", `the rule "w" writes to /tmp/x already`, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "sink.yaml")
			if err := os.WriteFile(path, []byte(test.text), 0o644); err != nil {
				t.Fatal(err)
			}
			c, err := Load(path)
			if err == nil || c != nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, %v, want %q", c, err, test.want)
			}
			if !strings.Contains(salt.Hint(err), test.hint) || strings.Contains(err.Error(), "geheim") {
				t.Errorf("got %q with the hint %q, want the hint %q", err, salt.Hint(err), test.hint)
			}
		})
	}
}

func TestPathsCountFromTheConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sink.yaml")
	if err := os.WriteFile(path, []byte("rules: {x: {to: {file: {path: out/x}}}}"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Rules[0].String(), "file "+filepath.Join(filepath.Dir(path), "out/x"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInsecureSettingsAreReported(t *testing.T) {
	c := configure(t, "a: {to: {webhook: {url: 'https://x/', insecure: true}}}", "b: {to: {webhook: {url: 'https://x/'}}}",
		"c: {to: {postgresql: {host: x, database: a, user: b, insecure: yes}}}")
	if got := c.Warnings(); len(got) != 2 || !strings.Contains(got[0], `"a"`) || !strings.Contains(got[1], `"c"`) {
		t.Errorf("warnings %q, want of a and c", got)
	}
}

// TestExamplesLoad reads what the documentation shows.
func TestExamplesLoad(t *testing.T) {
	text, err := os.ReadFile("../../doc/sink.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(examples) < 3 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, e := range examples {
		body := e[1]
		if !strings.Contains(body, "rules:") {
			body = "rules:\n" + body
		}
		loadText(t, body)
	}
}

// FuzzLoad: a configuration is read or refused, with its file, and never both.
func FuzzLoad(f *testing.F) {
	f.Add("rules: {x: {tag: a, to: {file: {path: y}}}}")
	f.Add("rules: &a {x: *a}")
	f.Add("rules:\n  x:\n    to: {webhook: {url: 'https://x', headers: {a: b}}}")
	path := filepath.Join(f.TempDir(), "sink.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := Load(path)
		if (c == nil) == (err == nil) {
			t.Errorf("Load = %v, %v", c, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), path) {
			t.Errorf("the error %q does not name the file", err)
		}
	})
}
