// Package scheduler starts the jobs of a minion's schedule when they are due. When that is
// is for package schedule, and how a job runs for a Runner.
package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/override"
	"github.com/brinebus/brine/internal/schedule"
)

// Runner runs the jobs.
type Runner interface {
	// CheckScheduled refuses a job that could not run here.
	CheckScheduled(schedule.Job) error
	// MissingFunction says that this minion does not have the function of a job, now.
	MissingFunction(schedule.Job) error
	// RunScheduled runs a job until its end.
	RunScheduled(schedule.Job)
}

// Options are what a scheduler is made with. All but Reload are required.
type Options struct {
	Config *config.Minion
	Runner Runner
	Reload func() (*config.Minion, error) // reads the configuration again
	Log    *slog.Logger
}

// Scheduler runs jobs by the clock. It implements module.Scheduler.
//
// When a job was due last is written down before the job starts: a restart at any
// moment may lose a run, and never doubles one.
type Scheduler struct {
	Options
	path string // of what was due last
	file override.File
	wake chan struct{}

	mu      sync.Mutex
	jobs    map[string]any // as the setting schedule has it, with what functions have changed
	setting *override.Setting
	clock   *schedule.Engine
	closed  bool // no job is started any more
	running sync.WaitGroup
}

const savedHead = "# Written by the functions of the module schedule: what they have changed. A job that is\n# null was deleted. Without this file the schedule of the configuration is in force.\n"

// Open reads the schedule of the configuration, what functions have changed of it, and when
// its jobs were due last.
func Open(o Options) (*Scheduler, error) {
	s := &Scheduler{
		Options: o, path: filepath.Join(o.Config.CacheDir, "schedule"), wake: make(chan struct{}, 1),
		file:  override.New(o.Config, "schedule", config.ScheduleChanges, savedHead),
		clock: schedule.New(time.Now(), func(most time.Duration) time.Duration { return rand.N(most + 1) }),
	}
	last, err := readLast(s.path)
	if err != nil {
		return nil, fmt.Errorf("read when jobs of the schedule were due: %w", err)
	}
	return s, s.take(o.Config, last)
}

// readLast reads when jobs were due last; a missing file is never.
func readLast(path string) (map[string]time.Time, error) {
	last := map[string]time.Time{}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &last); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return last, nil
}

// Check looks at the setting schedule of a configuration; a mistake has its place in the
// file. Whether this machine can run the jobs is for Open.
func Check(l config.Located) error {
	if _, err := schedule.Parse(l.Value(), time.Local); err != nil {
		return l.At(nil, err)
	}
	return nil
}

// Take makes the schedule of a configuration, with what functions have changed in it,
// the present one.
func (s *Scheduler) Take(cfg *config.Minion) error { return s.take(cfg, nil) }

func (s *Scheduler) take(cfg *config.Minion, last map[string]time.Time) error {
	configured, err := s.parse(cfg.Schedule.Value())
	if err != nil {
		return cfg.Schedule.At(nil, err)
	}
	setting, err := s.file.Read(cfg.Schedule)
	if err != nil {
		return err
	}
	if err := s.replace(setting.Entries(), last); err != nil {
		return fmt.Errorf("%s: %w", s.file.Path, err)
	}
	s.mu.Lock()
	s.setting = setting
	s.mu.Unlock()
	for _, j := range configured.Jobs { // it may be a module that is brought later, so nothing is stopped
		if err := s.Runner.MissingFunction(j); err != nil {
			s.Log.Warn("a job of the schedule would fail now", "job", j.Name, "file", cfg.Schedule.File, "err", err)
		}
	}
	setting.TellShadowed(func(name, configuredAt, changes string) {
		s.Log.Warn("this job of the configuration is not in force: functions of the module schedule have changed it", "job", name, "file", configuredAt, "changes", changes)
	})
	return nil
}

func (s *Scheduler) replace(v map[string]any, last map[string]time.Time) error {
	parsed, err := s.parse(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = v
	s.clock.Set(parsed, last, time.Now())
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// parse reads a schedule that this minion can run.
func (s *Scheduler) parse(v any) (schedule.Schedule, error) {
	parsed, err := schedule.Parse(v, time.Local)
	if err != nil {
		return parsed, err
	}
	for _, j := range parsed.Jobs {
		if err := s.Runner.CheckScheduled(j); err != nil {
			return parsed, fmt.Errorf("job %s: %w", j.Name, err)
		}
	}
	return parsed, nil
}

// Run starts what is due until ctx ends, and then waits for what runs.
func (s *Scheduler) Run(ctx context.Context) {
	defer s.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		s.mu.Lock()
		runs, skipped, next := s.clock.Due(time.Now())
		last := s.clock.Last()
		s.mu.Unlock()
		for name, why := range skipped {
			s.Log.Debug("scheduled job not started", "job", name, "reason", why)
		}
		if len(runs) > 0 {
			s.start(runs, last)
		}
		timer.Reset(pause(next))
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

func (s *Scheduler) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
}

// maxPause bounds how long the clock is trusted: it may be set, and then a job is
// late by no more than that.
const maxPause = time.Minute

func pause(next time.Time) time.Duration {
	if next.IsZero() {
		return maxPause
	}
	return min(max(time.Until(next), 0), maxPause)
}

// start writes down what was due and then starts it.
func (s *Scheduler) start(runs []schedule.Run, last map[string]time.Time) {
	b, err := json.Marshal(last)
	if err == nil {
		err = atomicfile.Write(s.path, append(b, '\n'), 0o600)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.Log.Error("scheduled jobs not started: when they were due cannot be written down", "err", err)
	}
	for _, r := range runs {
		if err != nil || !s.spawn(r.Job) {
			s.clock.Ended(r.Job.Name)
		}
	}
}

// spawn runs a job beside the caller, who holds the lock; false is that the minion stops.
func (s *Scheduler) spawn(j schedule.Job) bool {
	if s.closed {
		return false
	}
	s.running.Go(func() {
		defer s.ended(j.Name)
		s.Runner.RunScheduled(j)
	})
	return true
}

func (s *Scheduler) ended(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.Ended(name)
}

// Schedule implements module.Scheduler.
func (s *Scheduler) Schedule(context.Context) (schedule.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[string]time.Time{}
	for name := range s.jobs {
		if at := s.clock.Next(name); !at.IsZero() {
			next[name] = at
		}
	}
	return schedule.Status{Jobs: maps.Clone(s.jobs), Next: next, Origins: s.setting.Origins(s.jobs)}, nil
}

// SetSchedule implements module.Scheduler. What cannot be kept is not put in force
// either.
func (s *Scheduler) SetSchedule(_ context.Context, jobs map[string]any, save bool) error {
	if _, err := s.parse(jobs); err != nil {
		return err
	}
	if save {
		if err := s.keep(jobs); err != nil {
			return fmt.Errorf("keep the schedule: %w", err)
		}
	}
	return s.replace(jobs, nil)
}

func (s *Scheduler) keep(jobs map[string]any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setting.Keep(jobs)
}

// RunScheduled implements module.Scheduler.
func (s *Scheduler) RunScheduled(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, ok := s.clock.Begin(name)
	if !ok {
		return fmt.Errorf("job %s does not exist", name)
	}
	if !s.spawn(j) {
		s.clock.Ended(name)
		return errors.New("the minion is stopping")
	}
	return nil
}

// ReloadSchedule implements module.Scheduler.
func (s *Scheduler) ReloadSchedule(context.Context) error {
	if s.Reload == nil {
		return errors.New("this minion has no configuration to read again")
	}
	cfg, err := s.Reload()
	if err != nil {
		return err
	}
	return s.Take(cfg)
}
