package keyring

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// rules is the part of the configuration about new keys.
type rules struct {
	open, auto        bool
	autosign, autorej *ruleFile
	grainsDir         string
}

// decide returns the decision of the rules about a new key: an act, "" for none. Rejection
// takes precedence.
func (r rules) decide(id salt.MinionID) (string, error) {
	reject, err := r.autorej.lists(id)
	switch {
	case err != nil:
		return "", err
	case reject:
		return Reject, nil
	case r.auto:
		return Accept, nil
	}
	accept, err := r.autosign.lists(id)
	if err != nil || !accept {
		return "", err
	}
	return Accept, nil
}

// Bars reports whether the rules on new keys reject those of id.
func (k *Keyring) Bars(id salt.MinionID) (bool, error) {
	k.mu.RLock()
	file := k.rules.autorej
	k.mu.RUnlock()
	return file.lists(id)
}

// statRules looks at a file of rules. One that another user could have written is an error; for a missing one
// there is none, and no information.
func statRules(path string) (fs.FileInfo, error) {
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
	return info, nil
}

// ruleLines reads a file of rules, see statRules.
func ruleLines(path string) ([]string, error) {
	info, err := statRules(path)
	if info == nil || err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return linesOf(string(text)), nil
}

// linesOf returns the lines of a file of rules without comments.
func linesOf(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}
