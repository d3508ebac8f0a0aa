package scheduler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/schedule"
	"github.com/brinebus/brine/internal/scheduler"
	"github.com/brinebus/brine/test/deadline"
)

// runner runs jobs until they are let go.
type runner struct {
	begun chan string
	let   chan struct{}
}

var errNotHere = errors.New("not here")

func (r *runner) MissingFunction(schedule.Job) error { return nil }

func (r *runner) CheckScheduled(j schedule.Job) error {
	if j.Function == "not.here" {
		return errNotHere
	}
	return nil
}

func (r *runner) RunScheduled(j schedule.Job) {
	r.begun <- j.Name
	<-r.let
}

func open(t *testing.T, text string) (*scheduler.Scheduler, *runner, error) {
	t.Helper()
	return openWith(t, configured(t, text))
}

func openWith(t *testing.T, cfg *config.Minion) (*scheduler.Scheduler, *runner, error) {
	t.Helper()
	r := &runner{begun: make(chan string), let: make(chan struct{})}
	s, err := scheduler.Open(scheduler.Options{
		Config: cfg, Runner: r, Reload: func() (*config.Minion, error) { return cfg, nil }, Log: slog.New(slog.DiscardHandler),
	})
	return s, r, err
}

func configured(t *testing.T, text string) *config.Minion {
	t.Helper()
	cfg := &config.Minion{}
	cfg.ConfigDir, cfg.CacheDir, cfg.DefaultInclude = t.TempDir(), t.TempDir(), "minion.d/*.conf"
	path := filepath.Join(cfg.ConfigDir, "jobs")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if cfg.Schedule, err = config.ReadRules(path); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestRunWaitsForItsJobs: when Run has returned no job runs, and none is begun any more.
func TestRunWaitsForItsJobs(t *testing.T) {
	s, r, err := open(t, "rare: {function: test.ping, days: 1}\n")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	if err := s.RunScheduled(ctx, "rare"); err != nil {
		t.Fatal(err)
	}
	if name := deadline.Receive(t, r.begun, "begun"); name != "rare" {
		t.Errorf("begun is %s", name)
	}
	cancel()
	select {
	case <-ended:
		t.Error("it has ended while a job runs")
	default:
	}
	close(r.let)
	deadline.Receive(t, ended, "ended")
	if err := s.RunScheduled(t.Context(), "rare"); err == nil || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("a job after the end: %v", err)
	}
	if err := s.RunScheduled(t.Context(), "nosuch"); err == nil || !strings.Contains(err.Error(), "job nosuch does not exist") {
		t.Errorf("no job: %v", err)
	}
}

// TestAJobThatCannotRunHereIsRefused with its place, at the start, and by SetSchedule, which
// then changes nothing.
func TestAJobThatCannotRunHereIsRefused(t *testing.T) {
	if _, _, err := open(t, "odd: {function: not.here, days: 1}\n"); !errors.Is(err, errNotHere) || !strings.Contains(err.Error(), "jobs:1") {
		t.Errorf("open: %v", err)
	}
	s, _, err := open(t, "fine: {function: test.ping, days: 1}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetSchedule(t.Context(), schedule.Status{Jobs: map[string]any{"odd": map[string]any{"function": "not.here", "days": int64(1)}}}, true); !errors.Is(err, errNotHere) {
		t.Errorf("set: %v", err)
	}
	now, err := s.Schedule(t.Context())
	if _, ok := now.Jobs["fine"]; err != nil || !ok || len(now.Jobs) != 1 {
		t.Errorf("in force are %v, %v", now.Jobs, err)
	}
}

// TestNoChangeIsUndone: several change the schedule at once, each what it has read, and again where that
// was changed meanwhile. A schedule without a revision is one of an older salt-call.
func TestNoChangeIsUndone(t *testing.T) {
	s, _, err := open(t, "fine: {function: test.ping, days: 1}\n")
	if err != nil {
		t.Fatal(err)
	}
	job := map[string]any{"function": "test.ping", "days": int64(1)}
	const many = 20
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			for {
				now, err := s.Schedule(t.Context())
				if err == nil {
					now.Jobs[fmt.Sprint("job", i)] = job
					err = s.SetSchedule(t.Context(), now, true)
				}
				if errors.Is(err, schedule.ErrChanged) {
					continue
				}
				if err != nil {
					t.Error(err)
				}
				return
			}
		})
	}
	all.Wait()
	now, err := s.Schedule(t.Context())
	if err != nil || len(now.Jobs) != many+1 {
		t.Errorf("%d jobs of %d are in force: %v", len(now.Jobs), many+1, err)
	}
	old := schedule.Status{Jobs: map[string]any{"one": job}}
	if err := s.SetSchedule(t.Context(), old, false); err != nil {
		t.Error(err)
	}
	if err := s.SetSchedule(t.Context(), now, false); !errors.Is(err, schedule.ErrChanged) {
		t.Errorf("a schedule that was changed since: %v", err)
	}
}

// TestSIGHUPDropsNoChange: what was changed with persist=False stays until the next start, or schedule.reload.
func TestSIGHUPDropsNoChange(t *testing.T) {
	const text = "fine: {function: test.ping, days: 1}\n"
	s, _, err := open(t, text)
	if err != nil {
		t.Fatal(err)
	}
	inForce := func() (names string) {
		t.Helper()
		now, err := s.Schedule(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(slices.Sorted(maps.Keys(now.Jobs)), " ")
	}
	now, err := s.Schedule(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now.Jobs["other"] = now.Jobs["fine"]
	now.Jobs["enabled"] = false
	delete(now.Jobs, "fine")
	if err := s.SetSchedule(t.Context(), now, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Take(configured(t, text)); err != nil || inForce() != "enabled other" {
		t.Errorf("after SIGHUP %q are in force, %v", inForce(), err)
	}
	if err := s.ReloadSchedule(t.Context()); err != nil || inForce() != "fine" {
		t.Errorf("after schedule.reload %q are in force, %v", inForce(), err)
	}
}

// TestOnlyWhatIsChangedIsStored: a change with persist=False ends with the next start, also if another job was
// changed since; schedule.save stores it.
func TestOnlyWhatIsChangedIsStored(t *testing.T) {
	cfg := configured(t, "fine: {function: test.ping, days: 1}\nrare: {function: test.ping, days: 2}\n")
	reopen := func() *scheduler.Scheduler {
		t.Helper()
		s, _, err := openWith(t, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	inForce := func(s *scheduler.Scheduler) schedule.Status {
		t.Helper()
		now, err := s.Schedule(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	change := func(s *scheduler.Scheduler, save bool, edit func(jobs map[string]any)) {
		t.Helper()
		now := inForce(s)
		edit(now.Jobs)
		if err := s.SetSchedule(t.Context(), now, save); err != nil {
			t.Fatal(err)
		}
	}
	names := func(s *scheduler.Scheduler) string {
		return strings.Join(slices.Sorted(maps.Keys(inForce(s).Jobs)), " ")
	}
	s := reopen()
	change(s, false, func(jobs map[string]any) { jobs["enabled"] = false; delete(jobs, "rare") })
	change(s, true, func(jobs map[string]any) { jobs["other"] = jobs["fine"] })
	if got := names(s); got != "enabled fine other" {
		t.Errorf("in force are %q", got)
	}
	if got := names(reopen()); got != "fine other rare" {
		t.Errorf("after a start in force are %q", got)
	}
	change(s, true, func(jobs map[string]any) { delete(jobs, "fine") })
	if got := names(reopen()); got != "other rare" {
		t.Errorf("after a start in force are %q", got)
	}
	change(s, true, func(map[string]any) {})
	if got := names(reopen()); got != "enabled other" {
		t.Errorf("after schedule.save and a start in force are %q", got)
	}
}

// TestTheFirstIntervalIsRecorded: when a job came into the schedule is known after a restart, also if none has run since.
func TestTheFirstIntervalIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configured(t, "daily: {function: test.ping, hours: 24}\n")
		begin := time.Now()
		for range 3 {
			s, _, err := openWith(t, cfg)
			if err != nil {
				t.Fatal(err)
			}
			now, err := s.Schedule(t.Context())
			if next := now.Next["daily"]; err != nil || !next.Equal(begin.Add(24*time.Hour)) {
				t.Errorf("after %s it is due %s after the first start, %v", time.Since(begin), next.Sub(begin), err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go s.Run(ctx)
			time.Sleep(8*time.Hour - time.Minute)
			cancel()
			synctest.Wait()
			time.Sleep(time.Second)
		}
	})
}

// TestARecordOfATimeToCome: what a start before the clock is set finds in the file is still there when the minion stops
// soon. If it runs for an hour by that clock, the clock is right and the recorded time is not.
func TestARecordOfATimeToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configured(t, "daily: {function: test.ping, hours: 24}\n")
		file, want := filepath.Join(cfg.CacheDir, "schedule"), schedule.Past{At: time.Now().Add(48 * time.Hour)}
		if err := os.WriteFile(file, fmt.Appendf(nil, `{"daily":%q}`, want.At.Format(time.RFC3339)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, runs := range []time.Duration{time.Minute, 61 * time.Minute} {
			s, _, err := openWith(t, cfg)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			go s.Run(ctx)
			time.Sleep(runs)
			cancel()
			synctest.Wait()
			if runs > time.Hour {
				want = schedule.Past{At: begin, Every: 24 * time.Hour}
			}
			b, err := os.ReadFile(file)
			last := map[string]schedule.Past{}
			if err == nil {
				err = json.Unmarshal(b, &last)
			}
			if err != nil || !last["daily"].Equal(want) {
				t.Errorf("after %s the file has %s, %v; want %v", runs, b, err, want)
			}
		}
	})
}
