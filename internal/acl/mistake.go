package acl

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
)

// The mistakes that several settings share, each with the way out.

func errNotText(a at) error {
	err := fmt.Errorf("text is wanted, but this is %s", a.shape())
	if a.Kind == yaml.ScalarNode && !a.isNull() {
		return salt.WithHint(err, "write it in quotes: '"+a.Value+"'")
	}
	return err
}

func errNoList(a at, what string) error {
	err := fmt.Errorf("%s is a list, but this is %s", what, a.shape())
	switch {
	case a.isText():
		return salt.WithHint(err, "write it in brackets: ['"+strings.ReplaceAll(a.Value, "'", "''")+"']")
	case a.isNull():
		return salt.WithHint(err, "write [] to allow nothing")
	}
	return err
}

func errNotSingle(a at) error {
	err := fmt.Errorf("a mapping within a list has one key, but this has %d", len(a.Content)/2)
	for i := 0; i+1 < len(a.Content); i += 2 {
		if k := a.Content[i].Value; k == "args" || k == "kwargs" {
			return salt.WithHint(err, "indent args and kwargs further than the function that they belong to")
		}
	}
	return salt.WithHint(err, "make each key an item of its own, with a hyphen in front")
}

// errFunction explains a pattern of functions that does not compile.
func errFunction(pattern string, err error) error {
	err = fmt.Errorf("functions are regular expressions: %w", err)
	switch {
	case pattern == "*":
		return salt.WithHint(err, "every function is .*")
	case strings.HasPrefix(pattern, "*"):
		return salt.WithHint(err, "the star of a shell is .* here")
	}
	return err
}
