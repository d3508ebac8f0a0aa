// Package returner sends the returns of functions to further destinations: the master's bus under a
// tag, a file, the system log, a webhook. The master gets every return even if one of these fails.
//
// It does not decide which returners a job has, and it does not know the daemons' network: events
// for the master's bus go through a function of the [Host].
package returner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/salt"
)

// Return is the return of a function, with its call.
type Return struct {
	ID      salt.MinionID
	JID     salt.JID
	Fun     any // a text, or a list for several functions in one job
	Args    any
	Return  any
	Retcode any
	Success any
}

// Data is the return as a dictionary with Salt's keys.
func (r Return) Data() map[string]any {
	return map[string]any{
		"id": string(r.ID), "jid": string(r.JID), "fun": r.Fun, "fun_args": r.Args,
		"return": r.Return, "retcode": r.Retcode, "success": r.Success,
	}
}

// Host is the minion whose returns are sent.
type Host struct {
	ID salt.MinionID
	// Config is the minion's configuration by the names of its keys.
	Config map[string]any
	// Fire sends an event to the master's bus, or to the outbox for it; nil if there is neither.
	Fire func(ctx context.Context, tag string, data any) error
	// Custom has the returners that were added as programs; nil for none. They cannot replace a
	// built-in one.
	Custom    *extension.Set
	ConfigDir string   // for the environment of custom returners
	Disabled  []string // names of returners that are not there, built in or not
	// Databases is the program that writes returns to databases; "" for the one in the same
	// directory as this program.
	Databases string
	// Abandoned is shared by all jobs of the minion; nil for a process that sends only one return.
	Abandoned *Abandoned
	Log       *slog.Logger
}

// text returns a setting, or its default.
func (h *Host) text(key, byDefault string) string {
	if s, ok := h.Config[key].(string); ok && s != "" {
		return s
	}
	return byDefault
}

// Options are the caller's options for the returners of a job.
type Options struct {
	Tag string // of the events of master_bus; "" is the configured one
	// Config names another set of settings: for smtp, those below CONFIG.smtp take precedence over
	// those below smtp.
	Config string
	// Settings are single settings for all returners of the job; they take precedence over all
	// others.
	Settings map[string]any
}

// with returns the host with the options of a job for one returner.
func (h *Host) with(name string, o Options) *Host {
	if o.Config == "" && len(o.Settings) == 0 {
		return h
	}
	host := *h
	host.Config = maps.Clone(h.Config)
	if host.Config == nil {
		host.Config = map[string]any{}
	}
	for key, v := range h.Config {
		if setting, ok := strings.CutPrefix(key, o.Config+"."+name+"."); ok && o.Config != "" {
			host.Config[name+"."+setting] = v
		}
	}
	for key, v := range o.Settings {
		host.Config[name+"."+key] = v
	}
	return &host
}

// Returner is one kind of destination for returns.
type Returner struct {
	Name string
	Doc  string
	// early means that it takes a return at once, so that it has it before the master: when the
	// return is visible, so is the returner's output.
	early bool
	// open reads settings and options and returns a sender. It makes no connection.
	open func(h *Host, o Options) (sender, error)
}

type sender func(ctx context.Context, r Return) error

// ErrUnknown is wrapped by the error of Open for an unknown returner.
var ErrUnknown = errors.New("there is no such returner")

// Names returns the names of all returners, including custom ones, sorted.
func Names(custom *extension.Set) []string {
	var names []string
	for _, r := range table {
		names = append(names, r.Name)
	}
	for _, p := range custom.Programs() {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// find returns the returner of that name.
func (h *Host) find(name string) (*Returner, error) {
	if slices.Contains(h.Disabled, name) {
		return nil, salt.WithHint(fmt.Errorf("%w: %q", ErrUnknown, name), "disable_returners in the configuration of the minion has disabled it")
	}
	i, found := slices.BinarySearchFunc(table, name, func(r *Returner, name string) int { return strings.Compare(r.Name, name) })
	if found {
		return table[i], nil
	}
	if p := h.Custom.Find(name); p != nil {
		return programReturner(p), nil
	}
	return nil, salt.WithHint(fmt.Errorf("%w: %q", ErrUnknown, name), "the returners are "+strings.Join(Names(h.Custom), ", "))
}

// programReturner returns the returner for a custom program.
func programReturner(p *extension.Program) *Returner {
	return &Returner{Name: p.Name, open: func(h *Host, _ Options) (sender, error) {
		return func(ctx context.Context, r Return) error {
			return p.Return(ctx, extension.Request{ID: r.ID, JID: r.JID, Options: h.Config, Return: r.Data()}, extension.Env{ConfigDir: h.ConfigDir, JID: r.JID})
		}, nil
	}}
}

// Set is the returners of one job, ready to use. The zero value is none.
type Set struct {
	log       *slog.Logger
	ready     []ready
	abandoned *Abandoned
}

type ready struct {
	*Returner
	send sender
	call string // what its calls have in common: its name and its options
	own  bool   // with settings that the job gives
}

// Open prepares the returners with these names, each once; a name may be a comma-separated list. It
// fails for an unknown name, or a returner with incomplete settings, before anything runs.
func Open(names []string, o Options, h *Host) (Set, error) {
	s := Set{log: h.Log, abandoned: h.Abandoned}
	for _, name := range strings.Split(strings.Join(names, ","), ",") {
		if name = strings.TrimSpace(name); name == "" || s.has(name) {
			continue
		}
		r, err := h.find(name)
		if err != nil {
			return Set{}, err
		}
		send, err := r.open(h.with(name, o), o)
		if err != nil {
			return Set{}, fmt.Errorf("returner %s: %w", name, err)
		}
		s.ready = append(s.ready, ready{r, send, fmt.Sprintf("%s %q %v", name, o.Config, o.Settings), len(o.Settings) > 0})
	}
	return s, nil
}

func (s Set) has(name string) bool {
	return slices.ContainsFunc(s.ready, func(r ready) bool { return r.Name == name })
}

// sendTime limits how long one returner may take for one return.
const sendTime = 30 * time.Second

// Early passes r to the returners that take it at once. It is called before the return is sent to
// the master, Late after that. Failures are only logged: the master has the return.
func (s Set) Early(ctx context.Context, r Return) { s.hand(ctx, r, true) }

// Late passes r to all others.
func (s Set) Late(ctx context.Context, r Return) { s.hand(ctx, r, false) }

func (s Set) hand(ctx context.Context, r Return, early bool) {
	for _, one := range s.ready {
		if one.early != early {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, sendTime)
		err := one.within(limited, r, s.abandoned)
		cancel()
		if err != nil {
			s.log.Error("a returner has failed; the master has the return", "returner", one.Name, "jid", r.JID, "err", err)
		}
	}
}

// within calls send. One that does not return, for example since a network file system is gone, is abandoned at the
// end of ctx, so that the job ends, and the minion can stop. Until it returns it is not called again. While too many
// calls of one returner are under way, the next one waits.
func (one ready) within(ctx context.Context, r Return, a *Abandoned) error {
	leave, err := a.enter(ctx, one)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer leave()
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("panic: %v", p)
			}
		}()
		done <- one.send(ctx, r)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(sendGrace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		a.add(one.call, 1)
		go func() {
			<-done
			a.add(one.call, -1)
		}()
		return fmt.Errorf("it does not return, and is abandoned: %w", context.Cause(ctx))
	}
}

// sendGrace is how long a returner may take to end when its time is over.
const sendGrace = 5 * time.Second

// maxCalls limits the calls of one returner under way: each may hold a thread, and a process has a limited number of
// them. It is more than a returner that works needs.
const maxCalls = 64

// maxOwnCalls is how many of these may be with settings that a job gives: who invents some for which the returner does
// not return leaves room for the calls with the settings of the minion.
const maxOwnCalls = maxCalls / 2

// Abandoned counts the calls of returners under way, and those of them that were abandoned. The zero value is ready to
// use; nil counts nothing.
type Abandoned struct {
	mu    sync.Mutex
	calls map[string]int           // that were abandoned and have not returned yet
	under map[string]chan struct{} // by the name of the returner: it has one element for each call under way
	own   map[string]chan struct{} // likewise, for those with settings that a job gives
}

// enter counts a call, until leave is called. It waits for others of the same returner, and not for those that were
// abandoned with the same options.
func (a *Abandoned) enter(ctx context.Context, one ready) (leave func(), err error) {
	if a == nil {
		return func() {}, nil
	}
	if a.has(one.call) {
		return nil, errUnreturned
	}
	var entered []chan struct{}
	leave = func() {
		for _, under := range entered {
			<-under
		}
	}
	for _, under := range a.of(one) {
		select {
		case under <- struct{}{}:
			entered = append(entered, under)
		case <-ctx.Done():
			leave()
			return nil, fmt.Errorf("%d earlier calls of it have not returned: %w", cap(under), context.Cause(ctx))
		}
	}
	if a.has(one.call) { // by now
		leave()
		return nil, errUnreturned
	}
	return leave, nil
}

var errUnreturned = errors.New("it has not returned from an earlier return")

// of returns what limits a call, the narrower limit first.
func (a *Abandoned) of(one ready) (limits []chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.under == nil {
		a.under, a.own = map[string]chan struct{}{}, map[string]chan struct{}{}
	}
	if a.under[one.Name] == nil {
		a.under[one.Name], a.own[one.Name] = make(chan struct{}, maxCalls), make(chan struct{}, maxOwnCalls)
	}
	if one.own {
		limits = append(limits, a.own[one.Name])
	}
	return append(limits, a.under[one.Name])
}

func (a *Abandoned) has(call string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls[call] > 0
}

func (a *Abandoned) add(call string, n int) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calls == nil {
		a.calls = map[string]int{}
	}
	if a.calls[call] += n; a.calls[call] == 0 {
		delete(a.calls, call)
	}
}
