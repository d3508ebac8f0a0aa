// Package scheduler starts the jobs of a minion's schedule when they are due. Package schedule
// computes the times; a Runner runs the jobs.
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
	// CheckScheduled returns an error for a job that could not run here.
	CheckScheduled(schedule.Job) error
	// MissingFunction returns an error if this minion does not have the function of a job now.
	MissingFunction(schedule.Job) error
	// RunScheduled runs a job until its end.
	RunScheduled(schedule.Job)
}

// Options are the settings of a Scheduler. All but Reload are required.
type Options struct {
	Config *config.Minion
	Runner Runner
	Reload func() (*config.Minion, error) // reads the configuration again
	Log    *slog.Logger
}

// Scheduler runs jobs at set times. It implements module.Scheduler.
//
// When a job was last due is recorded before the job starts: a restart at any time may lose a
// run, but never repeats one. When the first interval of a job began is recorded as well.
type Scheduler struct {
	Options
	path string // file with the latest due times
	file override.File
	wake chan struct{}

	recorded map[string]schedule.Past // what the file has; only Run uses it
	failing  bool                     // it could not be written the last time; likewise

	change sync.Mutex // one change of the schedule at a time

	mu      sync.Mutex
	jobs    map[string]any // the setting schedule, with the changes made by functions
	setting *override.Setting
	revised uint64 // number of the present schedule, from 1
	fresh   bool   // it was replaced, and Run has not seen it yet
	clock   *schedule.Engine
	closed  bool // no more jobs are started
	running sync.WaitGroup
}

const savedHead = "# Written by the functions of the module schedule: what they have changed. A job that is\n# null was deleted. Without this file the schedule of the configuration is in force.\n"

// Open reads the schedule of the configuration, the changes made by functions, and the latest
// due times.
func Open(o Options) (*Scheduler, error) {
	s := &Scheduler{
		Options: o, path: filepath.Join(o.Config.CacheDir, "schedule"), wake: make(chan struct{}, 1),
		file:  override.New(o.Config, "schedule", config.ScheduleChanges, savedHead),
		clock: schedule.New(func(most time.Duration) time.Duration { return rand.N(most + 1) }),
	}
	last, err := readLast(s.path)
	if err != nil {
		return nil, fmt.Errorf("read when jobs of the schedule were due: %w", err)
	}
	s.recorded = last
	return s, s.take(o.Config, last, false)
}

// readLast reads the latest due times; a missing file means never.
func readLast(path string) (map[string]schedule.Past, error) {
	last := map[string]schedule.Past{}
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

// Check checks the setting schedule of a configuration; mistakes have their position in the
// file. Open checks whether this machine can run the jobs.
func Check(l config.Located) error {
	if _, err := schedule.Parse(l.Value(), time.Local); err != nil {
		return l.At(nil, err)
	}
	return nil
}

// Take puts the schedule of a configuration in force, with the changes made by functions, also those that are
// not stored.
func (s *Scheduler) Take(cfg *config.Minion) error { return s.take(cfg, nil, true) }

// take is Take; without all, the changes that are not stored are dropped.
func (s *Scheduler) take(cfg *config.Minion, last map[string]schedule.Past, all bool) error {
	configured, err := s.parse(cfg.Schedule.Value())
	if err != nil {
		return cfg.Schedule.At(nil, err)
	}
	setting, err := s.load(cfg, last, all)
	if err != nil {
		return err
	}
	for _, j := range configured.Jobs { // only a warning, since the module may be added later
		if err := s.Runner.MissingFunction(j); err != nil {
			s.Log.Warn("a job of the schedule would fail now", "job", j.Name, "file", cfg.Schedule.File, "err", err)
		}
	}
	setting.TellShadowed(func(name, configuredAt, changes string) {
		s.Log.Warn("this job of the configuration is not in force: functions of the module schedule have changed it", "job", name, "file", configuredAt, "changes", changes)
	})
	return nil
}

// load puts the schedule of a configuration in force that was parsed, as take does.
func (s *Scheduler) load(cfg *config.Minion, last map[string]schedule.Past, all bool) (*override.Setting, error) {
	s.change.Lock()
	defer s.change.Unlock()
	setting, err := s.file.Read(cfg.Schedule)
	if err != nil {
		return nil, err
	}
	jobs := setting.Entries()
	if all {
		s.mu.Lock()
		jobs = setting.After(s.setting, s.jobs)
		s.mu.Unlock()
	}
	if err := s.replace(jobs, last); err != nil {
		return nil, fmt.Errorf("%s: %w", s.file.Path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setting = setting
	return setting, nil
}

func (s *Scheduler) replace(v map[string]any, last map[string]schedule.Past) error {
	parsed, err := s.parse(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = v
	s.revised++
	s.fresh = true
	s.clock.Set(parsed, last, time.Now())
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// parse parses a schedule that this minion can run.
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

// Run starts jobs when they are due until ctx ends, and then waits for running ones.
func (s *Scheduler) Run(ctx context.Context) {
	defer s.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		s.mu.Lock()
		now := time.Now()
		runs, skipped, next := s.clock.Due(now)
		last, fresh := s.clock.Last(), s.fresh
		s.fresh = false
		s.mu.Unlock()
		for name, why := range skipped {
			s.Log.Debug("scheduled job not started", "job", name, "reason", why)
		}
		switch {
		case len(runs) > 0:
			s.start(runs, last)
		case (fresh || s.isWrong(last, now)) && !maps.EqualFunc(last, s.recorded, schedule.Past.Equal):
			failing := s.failing
			if err := s.record(last); err != nil && !failing {
				s.Log.Error("the beginning of new intervals of the schedule cannot be recorded: they begin anew at the next start", "err", err)
			}
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

// maxPause limits how long the clock is trusted: if it is set, a job is late by no more than
// that.
const maxPause = time.Minute

func pause(next time.Time) time.Duration {
	if next.IsZero() {
		return maxPause
	}
	return min(max(time.Until(next), 0), maxPause)
}

// isWrong reports whether a recorded time is still to come and no longer counts, since the clock was set back: an
// interval that goes on now would begin anew at each start.
func (s *Scheduler) isWrong(last map[string]schedule.Past, now time.Time) bool {
	for name, p := range s.recorded {
		if q, known := last[name]; known && p.At.After(now) && !p.Equal(q) {
			return true
		}
	}
	return false
}

// record writes the due times into the file.
func (s *Scheduler) record(last map[string]schedule.Past) error {
	b, err := json.Marshal(last)
	if err == nil {
		err = atomicfile.Write(s.path, append(b, '\n'), 0o600)
	}
	if s.failing = err != nil; err == nil {
		s.recorded = last
	}
	return err
}

// start records the due times and then starts the jobs.
func (s *Scheduler) start(runs []schedule.Run, last map[string]schedule.Past) {
	err := s.record(last)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.Log.Error("scheduled jobs not started: the times when they were due cannot be recorded", "err", err)
	}
	for _, r := range runs {
		if err != nil || !s.spawn(r.Job) {
			s.clock.Ended(r.Job.Name)
		}
	}
}

// spawn runs a job in a goroutine; the caller holds the lock. It returns false if the minion is
// stopping.
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
	return schedule.Status{Jobs: maps.Clone(s.jobs), Next: next, Origins: s.setting.Origins(s.jobs), Revision: s.revised}, nil
}

// SetSchedule implements module.Scheduler. What cannot be stored is not put in force either. save stores the jobs
// that are different now, and if there is none, as with schedule.save, all that is in force.
func (s *Scheduler) SetSchedule(_ context.Context, to schedule.Status, save bool) error {
	if _, err := s.parse(to.Jobs); err != nil {
		return err
	}
	s.change.Lock()
	defer s.change.Unlock()
	if to.Revision != 0 && to.Revision != s.revision() {
		return schedule.ErrChanged
	}
	if save {
		if err := s.keep(to.Jobs); err != nil {
			return fmt.Errorf("keep the schedule: %w", err)
		}
	}
	return s.replace(to.Jobs, nil)
}

func (s *Scheduler) revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revised
}

func (s *Scheduler) keep(jobs map[string]any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if changes := schedule.Changes(s.jobs, jobs); len(changes) > 0 {
		jobs = schedule.Changed(s.setting.Entries(), changes) // others may be in force until the next start only
	}
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

// ReloadSchedule implements module.Scheduler. It drops the changes that are not stored.
func (s *Scheduler) ReloadSchedule(context.Context) error {
	if s.Reload == nil {
		return errors.New("this minion has no configuration to read again")
	}
	cfg, err := s.Reload()
	if err != nil {
		return err
	}
	return s.take(cfg, nil, false)
}
