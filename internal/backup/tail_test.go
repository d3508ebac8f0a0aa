package backup_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// TestABackupHasEachEntryOfATable: an entry that is stored anew while its table is read is in the backup, although the server
// sends neither what it was nor what it is.
func TestABackupHasEachEntryOfATable(t *testing.T) {
	t.Parallel()
	addresses, direct := threeServers(t)
	js, err := direct.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	table, err := js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "grains", Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, value string) {
		t.Helper()
		if _, err := table.PutString(key, value); err != nil {
			t.Error(err)
		}
	}
	// More than the server sends before the first of it is confirmed.
	noise := rand.NewChaCha8([32]byte{})
	var want []string
	for n := range 64 {
		value := make([]byte, 256<<10)
		noise.Read(value) //nolint:errcheck // it never fails
		key := fmt.Sprintf("web%02d", n)
		put(key, string(value))
		want = append(want, key+": "+string(value))
	}
	snapshots := 0
	begun := answer(request("STREAM.SNAPSHOT", "KV_grains"))
	nc := connect(t, addresses[0], func(f *frame) action {
		if begun(f) {
			if snapshots++; snapshots == 1 {
				put("web62", "anew")
				put("web63", "anew")
				put("web63", "and anew")
				if err := table.Purge("web61"); err != nil {
					t.Error(err)
				}
				put("web64", "the first one")
			}
		}
		return pass
	})
	want = append(want[:61], "web62: anew", "web63: and anew", "web64: the first one")
	dir := filepath.Join(t.TempDir(), "backup")
	m, err := backup.Write(inTime(t), nc, backup.Options{Dir: dir, Version: "1", Log: bustest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	s := m.Streams[0]
	if snapshots != 1 || s.Messages != 65 || s.Last != 69 {
		t.Errorf("%d snapshots; %d messages up to %d, want 65 up to 69", snapshots, s.Messages, s.Last)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 {
		t.Errorf("in the backup: %q", left)
	}
	b := bustest.StartStore(t)
	if did := restore(t, b.Conn(), dir, backup.Target{}); !slices.Equal(did.Streams, []string{"KV_grains"}) {
		t.Errorf("restored: %q", did.Streams)
	}
	j, err := journal.Open(inTime(t), b.Conn(), journal.Options{Store: b.Store(), MaxAge: time.Hour, Reserve: b.Reserve})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	restored, err := j.Table(inTime(t), "grains")
	got := entries(t, restored, err)
	short := func(list []string) (keys []string) {
		for _, one := range list {
			keys = append(keys, strings.ToValidUTF8(one[:min(len(one), 24)], "?"))
		}
		return keys
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table has %q, want %q", short(got), short(want))
	}
}
