package minion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/returner"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/schedule"
)

// scheduler runs jobs by the clock. It implements module.Scheduler.
//
// When a job was due last is written down before the job starts: a restart at any
// moment may lose a run, and never doubles one.
type scheduler struct {
	m     *Minion
	path  string // of what was due last
	file  string // of what functions have changed, beside the drop-ins of the configuration
	ids   job.Clock
	wake  chan struct{}
	mu    sync.Mutex
	jobs  map[string]any    // as the setting schedule has it, with what functions have changed
	set   map[string]any    // what the configuration says
	at    map[string]string // where it says so: file:line of each job
	kept  map[string]any    // what file says: jobs that functions have set, nil for deleted ones
	clock *schedule.Engine
}

func openScheduler(m *Minion) (*scheduler, error) {
	s := &scheduler{
		m: m, path: filepath.Join(m.cfg.CacheDir, "schedule"), wake: make(chan struct{}, 1),
		clock: schedule.New(time.Now(), func(most time.Duration) time.Duration { return rand.N(most + 1) }),
	}
	if in := m.cfg.DefaultInclude; in != "" {
		s.file = filepath.Join(m.cfg.ConfigDir, filepath.Dir(in), config.ScheduleChanges)
	}
	b, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read when jobs of the schedule were due: %w", err)
	}
	last := map[string]time.Time{}
	if err == nil {
		if err := json.Unmarshal(b, &last); err != nil {
			return nil, fmt.Errorf("read when jobs of the schedule were due: %s: %w", s.path, err)
		}
	}
	return s, s.take(m.cfg, last)
}

// take makes the schedule of a configuration, with what functions have changed in it,
// the present one.
func (s *scheduler) take(cfg *config.Minion, last map[string]time.Time) error {
	v := cfg.Schedule.Value()
	set, ok := v.(map[string]any)
	if v != nil && !ok {
		return cfg.Schedule.At(nil, errors.New("the schedule is no dictionary"))
	}
	if _, err := s.parse(v); err != nil {
		return cfg.Schedule.At(nil, err)
	}
	kept, err := readChanges(s.file)
	if err != nil {
		return err
	}
	if err := s.replace(schedule.Changed(set, kept), last); err != nil {
		return fmt.Errorf("%s: %w", s.file, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set, s.at, s.kept = set, places(cfg.Schedule), kept
	s.tellShadowed()
	return nil
}

// readChanges reads what functions have changed; a missing file is no change.
func readChanges(path string) (map[string]any, error) {
	if path == "" {
		return nil, nil
	}
	rules, err := config.ReadRules(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	file, _ := rules.Value().(map[string]any)
	kept, ok := file["schedule"].(map[string]any)
	if !ok && file["schedule"] != nil {
		return nil, rules.At(nil, errors.New("the schedule is no dictionary"))
	}
	return kept, nil
}

// places returns where the configuration has each job.
func places(l config.Located) map[string]string {
	at := map[string]string{}
	if !l.Present() {
		return at
	}
	for i := 0; i+1 < len(l.Node.Content); i += 2 {
		at[l.Node.Content[i].Value] = l.Where(l.Node.Content[i])
	}
	return at
}

// tellShadowed names each job of the configuration that is not in force as it stands
// there, so that nobody edits it in vain.
func (s *scheduler) tellShadowed() {
	for name, o := range s.origins() {
		if o.Configured != nil {
			s.m.log.Warn("this job of the configuration is not in force: functions of the module schedule have changed it", "job", name, "file", s.at[name], "changes", s.file)
		}
	}
}

// origins says where each job comes from, and which of the configuration are not in
// force.
func (s *scheduler) origins() map[string]schedule.Origin {
	origins := map[string]schedule.Origin{}
	for name, now := range s.jobs {
		o := schedule.Origin{Place: s.file}
		switch then, configured := s.set[name]; {
		case configured && reflect.DeepEqual(now, then):
			o.Place = s.at[name]
		case configured:
			o.Configured, o.ConfiguredAt = then, s.at[name]
		}
		if k, ok := s.kept[name]; o.Place == s.file && (!ok || !reflect.DeepEqual(k, now)) {
			o.Place = "" // until the next start
		}
		origins[name] = o
	}
	for name, then := range s.set {
		if _, ok := s.jobs[name]; !ok {
			origins[name] = schedule.Origin{Deleted: true, Place: s.file, Configured: then, ConfiguredAt: s.at[name]}
		}
	}
	return origins
}

func (s *scheduler) replace(v any, last map[string]time.Time) error {
	parsed, err := s.parse(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs, _ = v.(map[string]any)
	s.clock.Set(parsed, last, time.Now())
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// parse reads a schedule that this minion can run.
func (s *scheduler) parse(v any) (schedule.Schedule, error) {
	parsed, err := schedule.Parse(v, time.Local)
	if err != nil {
		return parsed, err
	}
	for _, j := range parsed.Jobs {
		if _, err := s.m.returners(strings.Join(j.Returner, ","), returner.Options{Tag: j.ReturnTag}); err != nil {
			return parsed, fmt.Errorf("job %s: %w", j.Name, err)
		}
	}
	return parsed, nil
}

// run starts what is due until ctx ends.
func (s *scheduler) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		s.mu.Lock()
		runs, skipped, next := s.clock.Due(time.Now())
		last := s.clock.Last()
		s.mu.Unlock()
		for name, why := range skipped {
			s.m.log.Debug("scheduled job not started", "job", name, "reason", why)
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
func (s *scheduler) start(runs []schedule.Run, last map[string]time.Time) {
	b, err := json.Marshal(last)
	if err == nil {
		err = atomicfile.Write(s.path, append(b, '\n'), 0o600)
	}
	if err != nil {
		s.m.log.Error("scheduled jobs not started: when they were due cannot be written down", "err", err)
		for _, r := range runs {
			s.ended(r.Job.Name)
		}
		return
	}
	for _, r := range runs {
		s.m.wg.Go(func() { s.runJob(r.Job) })
	}
}

func (s *scheduler) ended(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.Ended(name)
}

// runJob runs a job as salt-call would, and tells the master if the job wants it.
func (s *scheduler) runJob(j schedule.Job) {
	defer s.ended(j.Name)
	m := s.m
	e := &job.Envelope{
		JID: s.ids.Next(time.Now()), Commands: []job.Command{{Function: j.Function, Args: j.Args, Kwargs: j.Kwargs}},
		Target: string(m.id), TargetType: "glob", User: "schedule", Returner: strings.Join(j.Returner, ","), ReturnTag: j.ReturnTag,
		Reach: salt.Reach{Free: true}, // it was decided about when it was stored
	}
	log := m.log.With("job", j.Name, "jid", e.JID, "fun", j.Function)
	back, err := m.returners(e.Returner, options(e))
	if err != nil {
		log.Error("scheduled job not started", "err", err)
		return
	}
	ctx, run, err := m.jobs.begin(m.ctx, e)
	if err != nil {
		log.Info("scheduled job not started", "err", err)
		return
	}
	defer run.end()
	log.Info("scheduled job")
	report := m.execute(ctx, e, nil)
	ret := m.asReturn(e, report)
	ctx = context.WithoutCancel(m.ctx)
	back.Early(ctx, ret)
	if u := m.masters.First(); u != nil && j.ReturnJob {
		q := protocol.LocalReturn{JID: e.JID, Command: e.Commands[0], Report: report, Schedule: j.Name}
		if _, err := m.box(u).Send(ctx, outbox.Outgoing{Op: protocol.OpReturn, Body: q}); err != nil {
			log.Error("return not delivered", "err", err)
		}
	}
	back.Late(ctx, ret)
}

// Schedule implements module.Scheduler.
func (s *scheduler) Schedule(context.Context) (schedule.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[string]time.Time{}
	for name := range s.jobs {
		if at := s.clock.Next(name); !at.IsZero() {
			next[name] = at
		}
	}
	return schedule.Status{Jobs: maps.Clone(s.jobs), Next: next, Origins: s.origins()}, nil
}

// SetSchedule implements module.Scheduler. What cannot be kept is not put in force
// either.
func (s *scheduler) SetSchedule(_ context.Context, jobs map[string]any, save bool) error {
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

// keep writes down in what jobs differ from the configuration, and nothing else: what is
// edited there later is in force then.
func (s *scheduler) keep(jobs map[string]any) error {
	if s.file == "" {
		return errors.New("default_include is empty: there is no folder for what functions change")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := schedule.Changes(s.set, jobs)
	text, err := config.DropIn("schedule", changes)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.file), 0o755); err != nil {
		return err
	}
	const head = "# Written by the functions of the module schedule: what they have changed. A job that is\n# null was deleted. Without this file the schedule of the configuration is in force.\n"
	if err := atomicfile.Write(s.file, []byte(head+text), 0o600); err != nil {
		return err
	}
	s.kept = changes
	return nil
}

// RunScheduled implements module.Scheduler.
func (s *scheduler) RunScheduled(_ context.Context, name string) error {
	s.mu.Lock()
	j, ok := s.clock.Begin(name)
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("job %s does not exist", name)
	}
	s.m.wg.Go(func() { s.runJob(j) })
	return nil
}

// ReloadSchedule implements module.Scheduler.
func (s *scheduler) ReloadSchedule(context.Context) error {
	if s.m.reload == nil {
		return errors.New("this minion has no configuration to read again")
	}
	cfg, err := s.m.reload()
	if err != nil {
		return err
	}
	return s.take(cfg, nil)
}

// scheduleRequest serves the schedule to salt-call, which runs functions in its own
// process.
func (m *Minion) scheduleRequest(ctx context.Context, r *rpc.Request) error {
	var q protocol.Schedule
	if err := r.Decode(&q); err != nil {
		return err
	}
	var err error
	switch q.Do {
	case protocol.ScheduleSet:
		jobs, ok := q.Jobs.V.(map[string]any)
		if !ok {
			return rpc.Errorf(rpc.Usage, "the schedule is no dictionary")
		}
		err = m.schedule.SetSchedule(ctx, jobs, q.Save)
	case protocol.ScheduleRun:
		err = m.schedule.RunScheduled(ctx, q.Name)
	case protocol.ScheduleReload:
		err = m.schedule.ReloadSchedule(ctx)
	}
	if err != nil {
		return rpc.Errorf(rpc.Usage, "%w", err)
	}
	now, err := m.schedule.Schedule(ctx)
	if err != nil {
		return err
	}
	return r.Send(ctx, protocol.NewSchedule(now))
}
