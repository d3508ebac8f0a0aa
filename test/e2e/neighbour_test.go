package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/brinebus/brine/test/programs"
)

// neighbours are salt-master programs of other versions, by the newest and the oldest protocol that
// they speak with other members.
var neighbours = struct {
	sync.Mutex
	built map[string]string
}{built: map[string]string{}}

// speaks has a master started with a program that speaks these protocols with other members, newest
// and oldest, from now on.
func speaks(s *system, ts *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	program, err := neighbour(args[1], args[2])
	if err != nil {
		return err
	}
	if s.programs == nil {
		s.programs = map[string]string{}
	}
	s.programs[args[0]] = program
	ts.Setenv("PROGRAM", program)
	return nil
}

// olderVariable names a directory with programs of an older version, for older. scripts/older makes it.
const olderVariable = "BRINE_OLDER"

// older has masters and minions started with the programs of an older version from now on; newer, with those of
// this one.
func older(s *system, _ *testscript.TestScript, args []string) error {
	if s.programs == nil {
		s.programs = map[string]string{}
	}
	for _, name := range args {
		s.programs[name] = filepath.Join(os.Getenv(olderVariable), daemon(name))
	}
	return nil
}

func newer(s *system, _ *testscript.TestScript, args []string) error {
	for _, name := range args {
		delete(s.programs, name)
	}
	return nil
}

// neighbour builds such a program once. It differs from this version in the two numbers alone.
func neighbour(newest, oldest string) (string, error) {
	neighbours.Lock()
	defer neighbours.Unlock()
	key := newest + "-" + oldest
	if program := neighbours.built[key]; program != "" {
		return program, nil
	}
	dir := filepath.Join(bin, "protocol-"+key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	overlay, err := overlaid(dir, newest, oldest)
	if err != nil {
		return "", err
	}
	args := []string{"build", "-tags", programs.Tags, "-overlay", overlay, "-o", dir + "/"}
	if raced {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "github.com/brinebus/brine/cmd/salt-master")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build a neighbour: %w\n%s", err, out)
	}
	neighbours.built[key] = filepath.Join(dir, "salt-master")
	return neighbours.built[key], nil
}

// protocols are the lines with the two numbers.
var protocols = regexp.MustCompile(`(?m)^\tnewestProtocol = \d+\n\toldestProtocol = \d+$`)

// overlaid writes an overlay for the compiler, in which the numbers are others.
func overlaid(dir, newest, oldest string) (string, error) {
	card, err := filepath.Abs("../../internal/member/card.go")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(card)
	if err != nil {
		return "", err
	}
	if !protocols.Match(text) {
		return "", errors.New("internal/member/card.go does not have the protocols where they are looked for")
	}
	other := filepath.Join(dir, "card.go")
	text = protocols.ReplaceAll(text, []byte("\tnewestProtocol = "+newest+"\n\toldestProtocol = "+oldest))
	if err := os.WriteFile(other, text, 0o644); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{card: other}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o644)
}
