package keyring

import (
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/target/fnmatch"
	"github.com/brinebus/brine/internal/target/pyre"
)

// ruleFile is a file with ids and patterns of minions, for autosign or autoreject. Anybody can make the master look
// into it, with a new key: it is read and compiled when it changes. A nil one lists nothing.
type ruleFile struct {
	path string

	mu       sync.Mutex
	info     fs.FileInfo // of what was read; nil if it may have changed since without a trace
	text     string
	patterns *patterns // of the text
	reads    int       // how often the file was read
	compiled int       // how often the text was compiled
}

func newRuleFile(path string) *ruleFile {
	if path == "" {
		return nil
	}
	return &ruleFile{path: path}
}

// settled is how old the last change of a file must be so that one that comes after it has another time.
const settled = 3 * time.Second

// lists reports whether id is in the file: by name, glob or regular expression, one a line, as in Salt, but matching
// whole ids only.
func (f *ruleFile) lists(id salt.MinionID) (bool, error) {
	if f == nil {
		return false, nil
	}
	p, err := f.read()
	return err == nil && p.match(string(id)), err
}

func (f *ruleFile) read() (*patterns, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := statRules(f.path)
	if err != nil {
		return nil, err
	}
	if info == nil {
		return &patterns{}, nil
	}
	if f.info != nil && os.SameFile(info, f.info) && info.Size() == f.info.Size() && info.ModTime().Equal(f.info.ModTime()) {
		return f.patterns, nil
	}
	now := time.Now()
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	f.reads++
	if f.patterns == nil || string(text) != f.text {
		f.text, f.patterns = string(text), compile(linesOf(string(text)))
		f.compiled++
	}
	if f.info = nil; now.Sub(info.ModTime()) > settled {
		f.info = info
	}
	return f.patterns, nil
}

// patterns are the compiled lines of a ruleFile. A line means three things: an id, a glob, and a regular expression
// for the whole id. Most lines have no character by which these differ, or only dots.
type patterns struct {
	ids     map[string]bool
	dotted  []string // a dot stands for any character
	globs   []*fnmatch.Pattern
	regexps []*pyre.Regexp
}

func compile(lines []string) *patterns {
	p := &patterns{ids: map[string]bool{}}
	for _, line := range lines {
		p.ids[line] = true
		plain := true
		for _, c := range line {
			plain = plain && salt.IsIDCharacter(c) && c != '+'
		}
		switch {
		case plain && strings.Contains(line, "."):
			p.dotted = append(p.dotted, line)
			continue
		case plain:
			continue
		}
		if strings.ContainsAny(line, "*?[") && len(line) <= target.MaxPattern {
			p.globs = append(p.globs, fnmatch.Compile(line))
		}
		if re, err := pyre.Compile("(?:" + line + ")$"); err == nil { // a glob is often not a regular expression
			p.regexps = append(p.regexps, re)
		}
	}
	return p
}

// match reports whether a valid id matches one of the lines. A regular expression that takes too long does not match.
func (p *patterns) match(id string) bool {
	if p.ids[id] {
		return true
	}
	for _, line := range p.dotted {
		if like(line, id) {
			return true
		}
	}
	for _, g := range p.globs {
		if g.Match(id) {
			return true
		}
	}
	for _, re := range p.regexps {
		if ok, err := re.Match(id); ok && err == nil {
			return true
		}
	}
	return false
}

// like reports whether an id is a line whose dots stand for any character.
func like(line, id string) bool {
	if len(line) != len(id) {
		return false
	}
	for i := range len(line) {
		if line[i] != id[i] && line[i] != '.' {
			return false
		}
	}
	return true
}
