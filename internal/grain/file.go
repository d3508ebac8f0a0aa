package grain

import (
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"brine/internal/value"
)

// maxFile bounds the grains file: a person writes it, and every byte of it goes
// to the master with each report of the grains.
const maxFile = 1 << 20

// file reads the static grains. A mistake in the file is an error that names it
// and the line; there are no grains of it then.
func (m *machine) file() (map[string]any, error) {
	if m.GrainsFile == "" {
		return nil, nil
	}
	info, err := os.Stat(m.GrainsFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: it is not a regular file", m.GrainsFile)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s: it has %d bytes, the limit is %d", m.GrainsFile, info.Size(), maxFile)
	}
	b, err := os.ReadFile(m.GrainsFile)
	if err != nil {
		return nil, err
	}
	g, err := parseFile(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.GrainsFile, err)
	}
	return g, nil
}

// parseFile reads a YAML mapping into the types of package value.
func parseFile(b []byte) (map[string]any, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, yamlError(err)
	}
	if doc.Kind == 0 || doc.Content[0].Tag == "!!null" {
		return nil, nil // empty, or comments alone
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: grains are a mapping of names to values", top.Line)
	}
	oldWords(top)
	var raw map[string]any
	if err := top.Decode(&raw); err != nil {
		return nil, yamlError(err)
	}
	v, err := native(raw, 0)
	if err != nil {
		return nil, err
	}
	return v.(map[string]any), nil
}

// yamlError keeps what the library says, drops its name and puts its lines right.
func yamlError(err error) error {
	prefix, place := regexp.MustCompile(`^yaml: (unmarshal errors:\s*)?`), regexp.MustCompile(`^line (\d+): (.*)`)
	// The lines of these mistakes the library counts from zero.
	fromZero := regexp.MustCompile(`^did not find expected (node content|key|'-' indicator|',' or|<)`)
	words := strings.ReplaceAll(prefix.ReplaceAllString(err.Error(), ""), "\n", ";")
	line := 1 // it leaves out the first
	if m := place.FindStringSubmatch(words); m != nil {
		line, _ = strconv.Atoi(m[1])
		words = m[2]
		if fromZero.MatchString(words) {
			line++
		}
	}
	return fmt.Errorf("line %d: %s", line, words)
}

// oldWords gives yes, no, on and off the meaning that they have in YAML 1.1,
// which Salt reads. Quoted they are text.
func oldWords(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Style == 0 && n.Tag == "!!str" {
		switch n.Value {
		case "yes", "Yes", "YES", "on", "On", "ON":
			n.Tag, n.Value = "!!bool", "true"
		case "no", "No", "NO", "off", "Off", "OFF":
			n.Tag, n.Value = "!!bool", "false"
		}
	}
	for i, c := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 1 { // keys stay text
			oldWords(c)
		}
	}
}

// native turns what the YAML library makes into the types of package value.
func native(v any, depth int) (any, error) {
	if depth > value.MaxDepth {
		return nil, value.ErrDepth
	}
	switch x := v.(type) {
	case nil, bool, string, float64:
		return x, nil
	case int:
		return int64(x), nil
	case int64:
		return x, nil
	case uint64:
		return new(big.Int).SetUint64(x), nil
	case time.Time:
		return date(x), nil
	case []any:
		return nativeList(x, depth)
	case map[string]any:
		return nativeMap(x, depth)
	case map[any]any:
		return nativeMap(x, depth)
	}
	return nil, fmt.Errorf("a grain can not hold %T", v)
}

// date writes a day or a moment as Python does.
func date(t time.Time) string {
	if t.Equal(t.Truncate(24 * time.Hour)) {
		return t.Format(time.DateOnly)
	}
	return t.Format(time.DateTime)
}

func nativeList(in []any, depth int) (any, error) {
	out := make([]any, len(in))
	for i, v := range in {
		var err error
		if out[i], err = native(v, depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// nativeMap makes text of the keys: a grain 1: x is looked for as "1".
func nativeMap[K comparable](in map[K]any, depth int) (any, error) {
	out := make(map[string]any, len(in))
	for k, v := range in {
		item, err := native(v, depth+1)
		if err != nil {
			return nil, err
		}
		out[value.Str(k)] = item
	}
	return out, nil
}
