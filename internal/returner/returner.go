// Package returner hands the returns of functions to further places: the master's
// bus under a tag, a file, the system's log, a webhook. The master gets every
// return whether or not one of these fails: they are beside it, not in its way.
//
// It does not decide which returners a job has, and it knows no network of the
// daemons: what reaches the master's bus goes through a function of the [Host].
package returner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/salt"
)

// Return is what a function has returned, with what it was called with.
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

// Host is the minion whose returns are handed on.
type Host struct {
	ID salt.MinionID
	// Config is the minion's configuration by the names of its keys.
	Config map[string]any
	// Fire puts an event on the master's bus, or into the outbox for it; nil where
	// there is neither.
	Fire func(ctx context.Context, tag string, data any) error
	// Custom are the returners that people have added; nil for none. A built-in one
	// stays what it is.
	Custom    *extension.Set
	ConfigDir string // for their environment
	// Databases is the program that puts returns into databases; "" for the one beside
	// this program.
	Databases string
	Log       *slog.Logger
}

// text returns a setting, or its default.
func (h *Host) text(key, byDefault string) string {
	if s, ok := h.Config[key].(string); ok && s != "" {
		return s
	}
	return byDefault
}

// Options are what the caller of a job says about its returners.
type Options struct {
	Tag string // of the events of master_bus; "" is the configured one
	// Config names another set of settings: for smtp those below CONFIG.smtp go
	// before those below smtp.
	Config string
	// Settings are single ones, for all returners of the job, that go before all.
	Settings map[string]any
}

// with is the host as a returner sees it under the options of a job.
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

// Returner is one place to which returns can go.
type Returner struct {
	Name string
	Doc  string
	// early says that it takes a return at once, so that it can have it before the
	// master does: who has seen the return finds what the returner made of it.
	early bool
	// open reads settings and options and returns what takes the returns. It
	// contacts nobody.
	open func(h *Host, o Options) (sender, error)
}

type sender func(ctx context.Context, r Return) error

// ErrUnknown is wrapped by the error of Open for a name that is no returner's.
var ErrUnknown = errors.New("there is no such returner")

// Names are the names of all returners, those among them that people have added,
// sorted.
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
	i, found := slices.BinarySearchFunc(table, name, func(r *Returner, name string) int { return strings.Compare(r.Name, name) })
	if found {
		return table[i], nil
	}
	if p := h.Custom.Find(name); p != nil {
		return programReturner(p), nil
	}
	return nil, salt.WithHint(fmt.Errorf("%w: %q", ErrUnknown, name), "the returners are "+strings.Join(Names(h.Custom), ", "))
}

// programReturner is a program that takes returns.
func programReturner(p *extension.Program) *Returner {
	return &Returner{Name: p.Name, open: func(h *Host, _ Options) (sender, error) {
		return func(ctx context.Context, r Return) error {
			return p.Return(ctx, extension.Request{ID: r.ID, JID: r.JID, Options: h.Config, Return: r.Data()}, extension.Env{ConfigDir: h.ConfigDir, JID: r.JID})
		}, nil
	}}
}

// Set is the returners of one job, ready. The zero value is none.
type Set struct {
	log   *slog.Logger
	ready []ready
}

type ready struct {
	*Returner
	send sender
}

// Open makes ready the returners of these names, each once; a name may be several
// with commas between. A name that is unknown, or a returner whose settings are
// incomplete, is an error: it is told before anything runs.
func Open(names []string, o Options, h *Host) (Set, error) {
	s := Set{log: h.Log}
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
		s.ready = append(s.ready, ready{r, send})
	}
	return s, nil
}

func (s Set) has(name string) bool {
	return slices.ContainsFunc(s.ready, func(r ready) bool { return r.Name == name })
}

// sendTime bounds how long one returner may take for one return.
const sendTime = 30 * time.Second

// Early hands r to those that take it at once; it is called before the master is
// told, Late after that. What fails is logged: the return itself is the master's.
func (s Set) Early(ctx context.Context, r Return) { s.hand(ctx, r, true) }

// Late hands r to all others.
func (s Set) Late(ctx context.Context, r Return) { s.hand(ctx, r, false) }

func (s Set) hand(ctx context.Context, r Return, early bool) {
	for _, one := range s.ready {
		if one.early != early {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, sendTime)
		err := one.send(limited, r)
		cancel()
		if err != nil {
			s.log.Error("a returner has failed; the master has the return", "returner", one.Name, "jid", r.JID, "err", err)
		}
	}
}
