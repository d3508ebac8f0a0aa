package minion_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// BenchmarkSync runs jobs, one after the other, and stores batches of a thousand events, on
// a master and a minion with journal_sync: always, beside two with the default. The times of
// jobs are medians; "sync-ms" is one fdatasync of a small write on the same disk.
func BenchmarkSync(b *testing.B) {
	const jobs, batches = 200, 30
	always, soon := syncedMaster(b, "always"), syncedMaster(b, "default")
	for b.Loop() {
		var with, without []time.Duration
		for range jobs {
			with = append(with, jobTime(b, always))
			without = append(without, jobTime(b, soon))
		}
		b.ReportMetric(milliseconds(with), "job-always-ms")
		b.ReportMetric(milliseconds(without), "job-default-ms")
		var slow, quick time.Duration
		for range batches {
			slow += fireTime(b, always)
			quick += fireTime(b, soon)
		}
		b.ReportMetric(float64(batches*1000)/slow.Seconds(), "events-always/s")
		b.ReportMetric(float64(batches*1000)/quick.Seconds(), "events-default/s")
	}
	b.ReportMetric(syncTime(b), "sync-ms")
	b.ReportMetric(0, "ns/op")
}

// syncedMaster is a master with one minion, both with this journal_sync.
func syncedMaster(b *testing.B, how string) *rpc.Conn {
	b.Helper()
	setting := "journal_sync: " + how + "\n"
	cfg, addr, _ := startMasterWith(b, func(string) string { return setting })
	m := minionConfig(b, addr, setting)
	startMinion(b, m)
	connected(b, m)
	c := dial(b, cfg.SockDir, master.SocketName)
	until(b, "the minion runs jobs", func() bool { return lastWord(b, c) == job.Done })
	return c
}

// lastWord is the last word on one job.
func lastWord(b *testing.B, c *rpc.Conn) (last job.State) {
	b.Helper()
	s, err := c.Call(protocol.OpPublish, protocol.Publish{Target: "web1", TargetType: "list", Timeout: 5, Commands: call("test.ping")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var start job.Start
	if err := s.Decode(b.Context(), &start); err != nil {
		return ""
	}
	for {
		var u job.Update
		if s.Decode(b.Context(), &u) != nil {
			return last
		}
		last = u.State
	}
}

func jobTime(b *testing.B, c *rpc.Conn) time.Duration {
	b.Helper()
	begun := time.Now()
	if s := lastWord(b, c); s != job.Done {
		b.Fatalf("the job ended as %q", s)
	}
	return time.Since(begun)
}

func fireTime(b *testing.B, c *rpc.Conn) time.Duration {
	b.Helper()
	q := protocol.Fire{Events: slices.Repeat([]event.Item{fireEvent("bench/sync", `{"n":1}`)}, 1000)}
	begun := time.Now()
	if err := c.Ask(b.Context(), protocol.OpFire, q, nil); err != nil {
		b.Fatal(err)
	}
	return time.Since(begun)
}

// syncTime is the median of a sync.
func syncTime(b *testing.B) float64 {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "file"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var all []time.Duration
	for range 100 {
		if _, err := f.Write(make([]byte, 300)); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(begun))
	}
	return milliseconds(all)
}

// milliseconds is the median.
func milliseconds(all []time.Duration) float64 {
	slices.Sort(all)
	return all[len(all)/2].Seconds() * 1000
}
