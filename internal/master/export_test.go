package master

import (
	"encoding/json"
	"testing"
	"time"
)

// Stored counts the streams and consumers that the master's server has.
func (m *Master) Stored(t *testing.T) (streams, consumers int) {
	t.Helper()
	answer, err := m.broker.Conn().Request("$JS.API.INFO", nil, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ Streams, Consumers int }
	if err := json.Unmarshal(answer.Data, &info); err != nil || info.Streams == 0 {
		t.Fatalf("%s: %v", answer.Data, err)
	}
	return info.Streams, info.Consumers
}
