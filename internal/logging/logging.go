// Package logging writes log records as lines in Salt's two formats: short ones
// for a person at a terminal, dated ones for a file.
//
//	[INFO    ] key accepted minion=web1
//	2026-11-21 11:24:50,524 [salt.master      :212 ][INFO    ][1234] key accepted minion=web1
//
// or, for programs, each line as a JSON object:
//
//	{"time":"2026-11-21T11:24:50.524Z","level":"INFO","msg":"key accepted","program":"salt-master","pid":1234,"minion":"web1"}
//
// A record is always one line: control characters in messages, names and values are escaped,
// so that no minion or user can forge a line or move a cursor. The package has no global
// logger.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// The names of common attributes, so that one search finds every line about something.
const (
	KeyMinion = "minion" // minion id
	KeyJID    = "jid"    // job id
	KeyFun    = "fun"    // function
	KeyUser   = "user"   // the user or other principal
	KeyTag    = "tag"    // tag of an event
	KeyErr    = "err"    // what went wrong
)

// FileMode is the mode of a new log file: a log names minions, users and functions, so only the
// owner and the group of administrators may read it.
const FileMode = 0o640

// Options defines where and how much a program logs.
type Options struct {
	Console      io.Writer  // nil: no console log
	ConsoleLevel slog.Level // the minimum level shown
	Color        bool       // colour the level; only for a terminal
	File         string     // path, appended to; "": no log file
	FileLevel    slog.Level // the minimum level written
	Name         string     // program name, used for records without a source
	JSON         bool       // write each line as a JSON object, to the console and the file
}

// Log is a logger whose levels and file can be changed. Its methods may be called while the logger
// is in use.
type Log struct {
	*slog.Logger
	console, fileLevel slog.LevelVar
	file               *file
}

// New opens the log. An error is only about the log file; a caller that can do without it calls New
// again with an empty File.
func New(o Options) (*Log, error) {
	l := &Log{}
	l.SetLevels(o.ConsoleLevel, o.FileLevel)
	var handlers []slog.Handler
	if o.Console != nil {
		handlers = append(handlers, o.handler(o.Console, &l.console, consoleHead(o.Color)))
	}
	if o.File != "" {
		f, err := openFile(o.File)
		if err != nil {
			return nil, err
		}
		l.file = f
		handlers = append(handlers, o.handler(f, &l.fileLevel, fileHead(o.Name)))
	}
	l.Logger = slog.New(join(handlers))
	return l, nil
}

// handler returns the handler for the chosen format.
func (o Options) handler(w io.Writer, level slog.Leveler, h head) slog.Handler {
	if o.JSON {
		return newJSONHandler(w, level, o.Name)
	}
	return newHandler(w, level, h)
}

// join combines several handlers; usually there is only one, without overhead.
func join(handlers []slog.Handler) slog.Handler {
	switch len(handlers) {
	case 0:
		return slog.DiscardHandler
	case 1:
		return handlers[0]
	}
	return slog.NewMultiHandler(handlers...)
}

// SetLevels changes the minimum levels for later records: a daemon calls it after it has read its
// configuration again.
func (l *Log) SetLevels(console, file slog.Level) {
	l.console.Set(console)
	l.fileLevel.Set(file)
}

// Reopen reopens the log file at its path, after log rotation has moved it. After an error the old
// file stays in use.
func (l *Log) Reopen() error {
	if l.file == nil {
		return nil
	}
	return l.file.reopen()
}

// Close closes the log file; later records go only to the console.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// file is a log file that can be reopened while it is in use.
type file struct {
	path string
	mu   sync.Mutex
	f    *os.File
}

func openFile(path string) (*file, error) {
	f, err := openAppend(path)
	if err != nil {
		return nil, err
	}
	return &file{path: path, f: f}, nil
}

func openAppend(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, FileMode)
	if err != nil {
		return nil, fmt.Errorf("open log file: %w", err)
	}
	return f, nil
}

func (l *file) reopen() error {
	fresh, err := openAppend(l.path)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.f.Close() // it only appends and never buffers, so nothing can be lost
	l.f = fresh
	return nil
}

func (l *file) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Write(p)
}

func (l *file) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
