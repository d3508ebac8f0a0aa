package bustest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// StoredIn returns how many messages a table has, the marks of deleted entries included.
func StoredIn(t testing.TB, nc *nats.Conn, table string) uint64 {
	t.Helper()
	m, err := nc.Request("$JS.API.STREAM.INFO.KV_"+table, nil, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		Error any
		State struct{ Messages uint64 }
	}
	if err := json.Unmarshal(m.Data, &info); err != nil || info.Error != nil {
		t.Fatalf("the table %s: %v, %v", table, err, info.Error)
	}
	return info.State.Messages
}
