package backup_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// TestAStreamWithoutALeaderIsNamed: a backup does not wait for the answers of a leader that there is not, and says which
// stream has none; at the beginning, and when the leader is lost while the streams are written.
func TestAStreamWithoutALeaderIsNamed(t *testing.T) { // not parallel: it changes how long is waited
	backup.SetLeaderTime(t, 200*time.Millisecond)
	const led = `{"state": {"bytes": 1}, "cluster": {"leader": "a", "replicas": [{"name": "b"}]}}`
	for name, c := range map[string]struct {
		info     []string // the answers about the stream; the last one again and again, none for ""
		snapshot string
	}{
		"nobody answers":            {[]string{""}, ""},
		"the server says so":        {[]string{`{"error": {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}}`}, ""},
		"another member answers":    {[]string{`{"state": {}, "cluster": {"leader": "", "replicas": [{"name": "b"}]}}`}, ""},
		"one that was the leader":   {[]string{`{"state": {}, "cluster": {"leader": "b", "replicas": [{"name": "b"}]}}`}, ""},
		"it is lost after the look": {[]string{led, ""}, `{"error": {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := bustest.Start(t)
			answer := func(subject string, text func() string) {
				sub, err := b.Conn().Subscribe(subject, func(m *nats.Msg) {
					if s := text(); s != "" {
						_ = m.Respond([]byte(s))
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = sub.Unsubscribe() })
			}
			names, err := json.Marshal(map[string]any{"total": 1, "streams": []string{"EVENTS_a"}})
			if err != nil {
				t.Fatal(err)
			}
			answer("$JS.API.STREAM.NAMES", func() string { return string(names) })
			answer("$JS.API.STREAM.INFO.EVENTS_a", func() string {
				text := c.info[0]
				c.info = c.info[min(1, len(c.info)-1):]
				return text
			})
			answer("$JS.API.STREAM.SNAPSHOT.EVENTS_a", func() string { return c.snapshot })
			dir := filepath.Join(t.TempDir(), "backup")
			_, err = backup.Write(inTime(t), b.Conn(), backup.Options{Dir: dir, Member: "a", Version: "1", Log: bustest.Log(t)})
			if !errors.As(err, new(salt.Unanswered)) || !strings.Contains(err.Error(), "the stream EVENTS_a cannot be backed up now: it has no leader") || !strings.Contains(salt.Hint(err), "cluster.status") {
				t.Errorf("the backup ends with %v, hint %q", err, salt.Hint(err))
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("there is a backup: %v", err)
			}
		})
	}
}
