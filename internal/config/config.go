package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// DefaultDir is the configuration directory if none is named.
const DefaultDir = "/etc/salt"

// Options say where a configuration comes from and how strictly it is read.
// The zero value reads DefaultDir as a command-line tool does.
type Options struct {
	// ConfigDir is the directory with the files master and minion. Empty means DefaultDir,
	// which may be missing; a named directory must exist.
	ConfigDir string
	// Overrides are settings from the command line, by key. Text is read as if it stood
	// unquoted in the file, so "90s" and "yes" work here too. An unknown key is an error.
	Overrides map[string]any
	// CheckOwner refuses files and directories that belong to a user other than root and the
	// effective user, or that the group or others may write. Daemons set it.
	CheckOwner bool
	// Strict turns into errors what could silently disable access rules: an unknown key that is
	// similar to one of security, and rules that allow something in two places. Daemons set it.
	// The tools need no rules, and must work while the file is being repaired.
	Strict bool
	// AllowUnreadable turns a file that the user may not read into a Notice. The tools of
	// ordinary users set it: they need little of the master's configuration, and its defaults
	// are right for most.
	AllowUnreadable bool
	// Lookup finds the name of this machine for a minion without an id. The zero value uses the
	// system's functions.
	Lookup Lookup
}

// LoadMaster reads the master's configuration from configDir, with otherwise zero Options.
func LoadMaster(configDir string) (*Master, []Notice, error) {
	return Options{ConfigDir: configDir}.Master()
}

// LoadMinion reads the minion's configuration from configDir, with otherwise zero Options.
func LoadMinion(configDir string) (*Minion, []Notice, error) {
	return Options{ConfigDir: configDir}.Minion()
}

// Master reads the master's configuration. The notices are for the log. On an error the Master
// is nil; the error has an *Error for each mistake that has a place.
func (o Options) Master() (*Master, []Notice, error) {
	m, notices, err := o.InspectMaster()
	if err != nil {
		return nil, notices, err
	}
	return m, notices, nil
}

// InspectMaster is like Master, for callers that look for further mistakes: after an error the
// Master holds what could be read. It is nil if nothing could.
func (o Options) InspectMaster() (*Master, []Notice, error) {
	m := NewMaster()
	l := loader{opts: o, daemon: "master", common: &m.Common}
	if err := l.load(); err != nil {
		return nil, l.notices, err
	}
	if _, ok := m.Raw["keep_jobs_seconds"]; !ok && m.Raw["keep_jobs"] != nil {
		m.KeepJobs = m.KeepJobHours
	}
	m.root()
	if err := m.checkNATS(); err != nil {
		l.wrong(l.placed(err))
	}
	m.strangeServers()
	l.idleNATS(m.idleNATS())
	return m, l.notices, Join(l.errs...)
}

// Minion reads the minion's configuration and resolves its id, see Minion.ID.
// Notices and errors are as for Options.Master.
func (o Options) Minion() (*Minion, []Notice, error) {
	m, notices, err := o.InspectMinion()
	if err != nil {
		return nil, notices, err
	}
	more, err := o.ResolveID(m)
	if err != nil {
		m = nil
	}
	return m, slices.Concat(notices, more), err
}

// ResolveID resolves the id of a minion that InspectMinion returned, see Minion.ID.
func (o Options) ResolveID(m *Minion) ([]Notice, error) { return m.resolveID(o) }

// InspectMinion is to Minion what InspectMaster is to Master. It does not resolve the id, and
// so writes nothing.
func (o Options) InspectMinion() (*Minion, []Notice, error) {
	m := NewMinion()
	l := loader{opts: o, daemon: "minion", common: &m.Common}
	if err := l.load(); err != nil {
		return nil, l.notices, err
	}
	m.root()
	for _, err := range []error{m.checkMasters(), m.checkNATS()} {
		if err != nil {
			l.wrong(l.placed(err))
		}
	}
	m.strangeServers()
	l.idleNATS(m.idleNATS())
	return m, slices.Concat(l.notices, m.noticeCommas()), Join(l.errs...)
}

// Place is a mistake and, apart from it, its position.
type Place struct {
	Where  string // file:line, "" if unknown
	Column int    // 0 if unknown
	Key    string
	Text   string
}

// PlaceOf separates a mistake from its position. It takes errors of this package, and of others
// with the same kind of error.
func PlaceOf(err error) Place {
	var e *Error
	if !errors.As(err, &e) {
		return Place{Text: err.Error()}
	}
	p := Place{Where: e.File, Column: e.Column, Key: e.Key, Text: e.Err.Error()}
	if e.Line > 0 {
		p.Where = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	return p
}

// Join makes one error of several, as errors.Join does, in the order of files and
// lines.
func Join(errs ...error) error {
	list := Mistakes(errors.Join(errs...))
	slices.SortStableFunc(list, func(a, b error) int {
		var x, y *Error
		if !errors.As(a, &x) || !errors.As(b, &y) {
			return 0
		}
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line))
	})
	return errors.Join(list...)
}

// Mistakes returns the single mistakes of an error of several.
func Mistakes(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range many.Unwrap() {
			out = append(out, Mistakes(e)...)
		}
		return out
	}
	if m, ok := err.(mistake); ok {
		return Mistakes(m.error)
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// Notice is something about the configuration that its owner should know and that prevents
// nothing: a setting without effect here, an unknown key, a name that has changed.
type Notice struct {
	File string // "" if it belongs to none
	Line int    // counted from 1; 0 if it belongs to none
	Key  string // the setting, "" if it belongs to none
	Text string // lower case, without the key

	Column int // counted from 1; 0 if it belongs to none
}

// String returns the notice as one line, with its position in front.
func (n Notice) String() string {
	return yamlfile.Place(n.File, n.Line, 0, n.Key) + n.Text
}

// Error is a mistake in the configuration, with its position.
type Error = yamlfile.Error

// ErrMistake is wrapped by every Error, and by what Mistake returns: a daemon that does not
// start because of it must not be restarted with the same configuration.
var ErrMistake = yamlfile.ErrMistake

// Mistake wraps err, found by the package that uses a setting, in ErrMistake. A nil err stays
// nil.
func Mistake(err error) error {
	if err == nil {
		return nil
	}
	return mistake{err}
}

type mistake struct{ error }

func (m mistake) Unwrap() error        { return m.error }
func (m mistake) Is(target error) bool { return target == ErrMistake }

// day is the unit of long durations.
const day = salt.Day

const maxDuration = salt.MaxDuration
