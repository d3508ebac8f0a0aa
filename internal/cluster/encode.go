package cluster

import (
	"bytes"
	"encoding/json"
)

// encode is json.Marshal that leaves <, > and & as they are. json.Marshal makes six bytes of each, so
// that what is within a limit at one member would be above it on the way to another one.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	text := json.NewEncoder(&b)
	text.SetEscapeHTML(false)
	err := text.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
