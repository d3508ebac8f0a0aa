package protocol

import (
	"encoding"
	"encoding/json"
)

// Encode makes the body of a request: JSON, unless v has its own format.
func Encode(v any) ([]byte, error) {
	if m, ok := v.(encoding.BinaryMarshaler); ok {
		return m.MarshalBinary()
	}
	return json.Marshal(v)
}
