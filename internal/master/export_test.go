package master

import (
	"context"
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

// CutEnded cuts the remote users whose login does not hold any more, as is done now and then.
func (m *Master) CutEnded(ctx context.Context) { m.admission.CutEnded(ctx) }
