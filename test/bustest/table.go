package bustest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// StoredIn returns how many entries a table has, the marks of deleted ones included.
func StoredIn(t testing.TB, nc *nats.Conn, table string) uint64 {
	t.Helper()
	m, err := nc.Request("$JS.API.STREAM.INFO.KV_"+table, nil, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		Error any
		State struct {
			Entries uint64 `json:"num_subjects"`
		}
	}
	if err := json.Unmarshal(m.Data, &info); err != nil || info.Error != nil {
		t.Fatalf("the table %s: %v, %v", table, err, info.Error)
	}
	return info.State.Entries
}
