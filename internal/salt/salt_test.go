package salt

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseMinionID(t *testing.T) {
	good := []string{"web1", "db1.example.com", "a", "WEB_1", "x-y", "user@host", "fe80::1", strings.Repeat("a", 253), "1"}
	for _, s := range good {
		if id, err := ParseMinionID(s); err != nil || string(id) != s {
			t.Errorf("ParseMinionID(%q) = %q, %v; want it accepted", s, id, err)
		}
	}
	bad := map[string]string{
		"empty": "", "dot": ".", "dotdot": "..", "traversal": "../x", "slash": "a/b", "backslash": `a\b`,
		"nul": "a\x00b", "newline": "a\n", "blank": "a b", "long": strings.Repeat("a", 254), "hidden": ".web",
		"option": "-web", "glob": "web*", "question": "web?", "bracket": "w[e]b", "comma": "a,b", "wildcard": ">",
		"cyrillic look-alike": "wеb1", "full-width": "ｗeb1", "bad utf-8": "a\xff", "a user's name": "user:root", "percent is fine, colon is fine, pipe is not": "a|b",
	}
	for name, s := range bad {
		if id, err := ParseMinionID(s); !errors.Is(err, ErrMinionID) || id != "" {
			t.Errorf("%s: ParseMinionID(%q) = %q, %v; want ErrMinionID", name, s, id, err)
		}
	}
}

func TestParseFunction(t *testing.T) {
	f, err := ParseFunction("test.ping")
	if err != nil || f.Module() != "test" || f.Name() != "ping" {
		t.Errorf("test.ping = %q %q, %v", f.Module(), f.Name(), err)
	}
	for _, s := range []string{"", "ping", ".ping", "test.", "test.ping.x", "te st.ping", "test.1x", "../x.y", "a.b\n", strings.Repeat("a", 128) + ".b"} {
		if f, err := ParseFunction(s); !errors.Is(err, ErrFunction) || f != "" {
			t.Errorf("ParseFunction(%q) = %q, %v; want ErrFunction", s, f, err)
		}
	}
}

func TestParseUserName(t *testing.T) {
	for _, s := range []string{"root", "fred", `EXAMPLE\fred`, "fred@example.com", "svc-1$", "jürgen"} {
		if u, err := ParseUserName(s); err != nil || string(u) != s {
			t.Errorf("ParseUserName(%q) = %q, %v; want it accepted", s, u, err)
		}
	}
	for _, s := range []string{"", "-x", "a:b", "a/b", "a,b", "a b", "a\n", "a\x00", "\xff", strings.Repeat("u", 256)} {
		if u, err := ParseUserName(s); !errors.Is(err, ErrUserName) || u != "" {
			t.Errorf("ParseUserName(%q) = %q, %v; want ErrUserName", s, u, err)
		}
	}
}

func TestJID(t *testing.T) {
	when := time.Date(2026, 11, 21, 11, 33, 44, 286549000, time.UTC)
	j := NewJID(when)
	if j != "20261121113344286549" {
		t.Fatalf("NewJID = %s", j)
	}
	back, err := j.Time()
	if err != nil || !back.Equal(when) {
		t.Errorf("%s.Time() = %v, %v; want %v", j, back, err, when)
	}
	for _, s := range []string{"", "2026", "2026112111334428654x", "20261321113344286549", "20261121113344286549 ", "../../../../etc/passwd"} {
		if j, err := ParseJID(s); !errors.Is(err, ErrJID) || j != "" {
			t.Errorf("ParseJID(%q) = %q, %v; want ErrJID", s, j, err)
		}
	}
}

func FuzzParseMinionID(f *testing.F) {
	for _, s := range []string{"web1", "..", "a/b", "wеb1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseMinionID(s)
		if err != nil {
			if id != "" {
				t.Errorf("an error and an id: %q", id)
			}
			return
		}
		if string(id) != s || strings.ContainsAny(s, "/\\*?[]>, \x00\n") || strings.HasPrefix(s, ".") {
			t.Errorf("accepted %q", s)
		}
	})
}
