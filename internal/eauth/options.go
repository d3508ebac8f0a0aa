package eauth

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/config"
)

// options are the keys of a backend in external_auth that are not users.
type options struct {
	setting config.Located
	node    *yaml.Node // the mapping of the backend
}

// find returns the value of a key, nil if it is missing.
func (o options) find(key string) *yaml.Node {
	if o.node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(o.node.Content); i += 2 {
		if o.node.Content[i].Value == key {
			return o.node.Content[i+1]
		}
	}
	return nil
}

// known lists the options of each backend that has options.
var known = map[string][]string{
	"file": {"^field_separator", "^filename", "^hashtype", "^password_field", "^username_field"},
}

// checkKeys refuses options that the backend does not have: a typo would leave the default in
// force.
func (o options) checkKeys(backend string) error {
	if o.node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(o.node.Content); i += 2 {
		if key := o.node.Content[i]; strings.HasPrefix(key.Value, "^") && !slices.Contains(known[backend], key.Value) {
			return o.setting.At(key, fmt.Errorf("the backend %s has no option %s", backend, key.Value))
		}
	}
	return nil
}

// at prefixes err with the position of a key.
func (o options) at(key string, err error) error {
	n := o.find(key)
	if n == nil {
		n = o.node
	}
	return o.setting.At(n, fmt.Errorf("%s: %w", key, err))
}

func (o options) text(key, byDefault string) (string, error) {
	n := o.find(key)
	switch {
	case n == nil:
		return byDefault, nil
	case n.Kind != yaml.ScalarNode:
		return "", o.at(key, errors.New("it is not a single value"))
	}
	return n.Value, nil
}

func (o options) number(key string, byDefault, low, high int) (int, error) {
	text, err := o.text(key, strconv.Itoa(byDefault))
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, o.at(key, fmt.Errorf("%.40q is not a number from %d to %d", text, low, high))
	}
	return n, nil
}
