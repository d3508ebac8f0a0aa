package pyre

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// differences are the patterns that Brine answers differently, with the reason.
var differences = map[string]string{
	"(?<=a+)b": "the engine looks back over any width; Python refuses what is not of fixed width",
}

type pythonCases struct {
	Subjects []string
	Cases    []struct {
		Pattern, Error   string
		Match, Fullmatch []string
	}
}

func loadCases(t testing.TB) pythonCases {
	t.Helper()
	b, err := os.ReadFile("testdata/python.json")
	if err != nil {
		t.Fatal(err)
	}
	var c pythonCases
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPython(t *testing.T) {
	all := loadCases(t)
	for _, c := range all.Cases {
		complaint := compare(all.Subjects, c.Pattern, c.Error, c.Match, c.Fullmatch)
		reason, known := differences[c.Pattern]
		switch {
		case known && complaint == "":
			t.Errorf("%q no longer differs: remove it from the list (%s)", c.Pattern, reason)
		case !known && complaint != "":
			t.Errorf("%q: %s", c.Pattern, complaint)
		}
	}
}

// compare returns what is different from Python's answers, or "".
func compare(subjects []string, pattern, wantErr string, match, full []string) string {
	re, err := Compile(pattern)
	reFull, errFull := CompileFull(pattern)
	if (err == nil) != (errFull == nil) {
		return "Compile and CompileFull disagree"
	}
	if wantErr != "" {
		if !errors.Is(err, ErrSyntax) {
			return "accepted; Python says " + wantErr
		}
		return ""
	}
	if err != nil {
		return err.Error()
	}
	for _, s := range subjects {
		if got, err := re.Match(s); err != nil || got != slices.Contains(match, s) {
			return "match on " + s + " differs"
		}
		if got, err := reFull.Match(s); err != nil || got != slices.Contains(full, s) {
			return "fullmatch on " + s + " differs"
		}
	}
	return ""
}

func TestErrorsSayWhatAndWhere(t *testing.T) {
	for pattern, want := range map[string]string{
		"[":         "unterminated character set at position 0",
		"*":         "nothing to repeat at position 0",
		"web**":     "multiple repeat at position 4",
		"(?-i)web1": "missing : at position 4",
		"web(1|2":   "missing ), unterminated subpattern at position 3",
		"web)":      "unbalanced parenthesis at position 3",
		`ü\q`:       `bad escape \q at position 1`,
		"[z-a]":     "bad character range z-a at position 1",
		"a{3,2}":    "min repeat greater than max repeat at position 1",
		"(?":        "unexpected end of pattern at position 2",
		"(?(2)a)":   "invalid group reference 2",
	} {
		_, err := Compile(pattern)
		if !errors.Is(err, ErrSyntax) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("Compile(%q) = %v, want an error that ends in %q", pattern, err, want)
		}
	}
}

func TestLinearWhenPossible(t *testing.T) {
	for pattern, linear := range map[string]bool{
		`web\d+`: true, `(web|db).*`: true, `(?i)WEB`: true, `^\w+$`: true, `[^\W]`: true,
		`web(?!1)`: false, `\bweb`: false, `(a)\1`: false, `a++`: false, `a{5000}`: false,
	} {
		re, err := Compile(pattern)
		if err != nil {
			t.Errorf("Compile(%q): %v", pattern, err)
			continue
		}
		if got := re.linear != nil; got != linear {
			t.Errorf("%q: linear engine %v, want %v", pattern, got, linear)
		}
	}
}

// hangs is what no match takes on the busiest of machines. Without a bound these take years.
const hangs = time.Minute

func TestNeverHangs(t *testing.T) {
	for _, pattern := range []string{`(?=a)(a+)+$`, `(?!x)(a|aa)+$`, `(a*)*\1b`, `(?:a?){60}(?!x)a{60}b`, `(?!x)(.*)*c`} {
		re, err := Compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		ok, err := re.Match(strings.Repeat("a", 5000) + "!")
		if took := time.Since(begin); took > hangs {
			t.Errorf("%q took %v", pattern, took)
		}
		if err != nil && (ok || !errors.Is(err, ErrTooExpensive)) {
			t.Errorf("%q = %v, %v", pattern, ok, err)
		}
	}
}

func TestBounds(t *testing.T) {
	for name, pattern := range map[string]string{
		"long":   strings.Repeat("a", MaxPattern+1),
		"deep":   strings.Repeat("(", maxDepth+1) + strings.Repeat(")", maxDepth+1),
		"utf-8":  "\xff",
		"repeat": "a{99999999999}",
	} {
		if _, err := Compile(pattern); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %v, want ErrSyntax", name, err)
		}
	}
	re, err := Compile(`(?=a)a`)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := re.Match(strings.Repeat("a", MaxSubject+1)); ok || !errors.Is(err, ErrTooExpensive) {
		t.Errorf("a long subject = %v, %v", ok, err)
	}
}

func FuzzCompile(f *testing.F) {
	for _, c := range loadCases(f).Cases {
		f.Add(c.Pattern, "web1")
	}
	f.Fuzz(func(t *testing.T, pattern, subject string) {
		begin := time.Now()
		defer func() {
			if took := time.Since(begin); took > hangs {
				t.Errorf("%q on %q took %v", pattern, subject, took)
			}
		}()
		re, err := Compile(pattern)
		if err != nil {
			if re != nil || !errors.Is(err, ErrSyntax) {
				t.Errorf("Compile(%q) = %v, %v", pattern, re, err)
			}
			return
		}
		if ok, err := re.Match(subject); err != nil && ok {
			t.Errorf("%q on %q: an error and a match", pattern, subject)
		}
		if re.String() != pattern {
			t.Errorf("String() = %q, want %q", re, pattern)
		}
	})
}

func BenchmarkLinear(b *testing.B) {
	re, _ := Compile(`web\d+\.example\.com$`)
	for b.Loop() {
		re.Match("web1234.example.com")
	}
}

func BenchmarkBacktracking(b *testing.B) {
	re, _ := Compile(`web(?!10)\d+\.example\.com$`)
	for b.Loop() {
		re.Match("web1234.example.com")
	}
}
