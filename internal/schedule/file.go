package schedule

import (
	"bytes"

	"gopkg.in/yaml.v3"
)

// Text writes a schedule, in the form that Parse reads, as YAML with the key
// schedule above it: a drop-in of the configuration.
func Text(jobs map[string]any) (string, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(map[string]any{"schedule": jobs}); err != nil {
		return "", err
	}
	return b.String(), e.Close()
}
