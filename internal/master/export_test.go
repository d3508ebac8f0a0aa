package master

import (
	"context"
	"encoding/json"
	"testing"
	"time"
)

// Stored names the streams that the master's server has, and counts its consumers.
func (m *Master) Stored(t *testing.T) (streams []string, consumers int) {
	t.Helper()
	ask := func(what string, v any) {
		answer, err := m.broker.Conn().Request("$JS.API."+what, nil, 10*time.Second)
		if err == nil {
			err = json.Unmarshal(answer.Data, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var names struct{ Streams []string }
	var info struct{ Streams, Consumers int }
	ask("STREAM.NAMES", &names)
	ask("INFO", &info)
	if len(names.Streams) == 0 || info.Streams < len(names.Streams) {
		t.Fatalf("it has %d streams, %q", info.Streams, names.Streams)
	}
	return names.Streams, info.Consumers
}

// CutEnded cuts the remote users whose login does not hold any more, as is done now and then.
func (m *Master) CutEnded(ctx context.Context) { m.admission.CutEnded(ctx) }

// MinionEndpoints are what can be requested through NATS servers.
var MinionEndpoints = minionEndpoints

// TellWhile is tellWhile.
var TellWhile = tellWhile

// JoinSteps is joinSteps.
var JoinSteps = joinSteps
