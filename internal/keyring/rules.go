package keyring

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// rules is the part of the configuration about new keys.
type rules struct {
	open, auto        bool
	autosign, autorej string
	grainsDir         string
}

// decide returns the decision of the rules about a new key: an act, "" for none. Rejection
// takes precedence.
func (r rules) decide(id salt.MinionID) (string, error) {
	reject, err := listed(r.autorej, id)
	switch {
	case err != nil:
		return "", err
	case reject:
		return Reject, nil
	case r.auto:
		return Accept, nil
	}
	accept, err := listed(r.autosign, id)
	if err != nil || !accept {
		return "", err
	}
	return Accept, nil
}

// Bars reports whether the rules on new keys reject those of id.
func (k *Keyring) Bars(id salt.MinionID) (bool, error) {
	k.mu.RLock()
	path := k.rules.autorej
	k.mu.RUnlock()
	return listed(path, id)
}

// listed reports whether id is in an autosign or autoreject file: by name, glob or regular
// expression, one a line, as in Salt, but matching whole ids only.
func listed(path string, id salt.MinionID) (bool, error) {
	lines, err := ruleLines(path)
	if err != nil {
		return false, err
	}
	for _, line := range lines {
		if line == string(id) || matches(line, target.Glob, id) || matches("(?:"+line+")$", target.PCRE, id) {
			return true, nil
		}
	}
	return false, nil
}

func matches(expr string, kind target.Kind, id salt.MinionID) bool {
	t, err := target.Parse(expr, kind, target.Options{})
	if err != nil {
		return false // a glob is often not a regular expression
	}
	ok, err := t.Match(target.Facts{ID: id})
	return ok && err == nil
}

// ruleLines reads a file of rules. One that another user could have written is an error; a
// missing one has no rules.
func ruleLines(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	owner, mode, err := posix.Owner(path, info)
	if err != nil {
		return nil, err
	}
	if !mode.IsRegular() || mode.Perm()&0o022 != 0 || owner != 0 && owner != os.Geteuid() {
		return nil, fmt.Errorf("%s decides on keys and is not used: it must be a file of root or the daemon's user that nobody else may write", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines, nil
}
