// Package logging writes log records as lines in Salt's two formats: short ones
// for a person at a terminal, dated ones for a file.
//
//	[INFO    ] key accepted minion=web1
//	2026-11-21 11:24:50,524 [salt.master      :212 ][INFO    ][1234] key accepted minion=web1
//
// or, for programs, each line as an object of JSON:
//
//	{"time":"2026-11-21T11:24:50.524Z","level":"INFO","msg":"key accepted","program":"salt-master","pid":1234,"minion":"web1"}
//
// A record is always one line: control characters in messages, names and values
// are escaped, so that no minion or user can forge a line or move a cursor.
// The package makes loggers and hands them out; it keeps no global one.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// The fixed names of attributes, so that one search finds every line about a
// thing.
const (
	KeyMinion = "minion" // minion id
	KeyJID    = "jid"    // job id
	KeyFun    = "fun"    // function
	KeyUser   = "user"   // who asked
	KeyTag    = "tag"    // tag of an event
	KeyErr    = "err"    // what went wrong
)

// FileMode is the mode of a new log file: a log names minions, users and
// functions, which is for the owner and the group of administrators.
const FileMode = 0o640

// Options says where a program logs to, and how much.
type Options struct {
	Console      io.Writer  // nil: no console log
	ConsoleLevel slog.Level // the least level shown
	Color        bool       // paint the level; for a terminal only
	File         string     // path, appended to; "": no log file
	FileLevel    slog.Level // the least level written
	Name         string     // program, names the few records that have no source
	JSON         bool       // a line is an object of JSON, in both places
}

// Log is a logger and the handles to steer it. Its methods can be called while
// the logger is in use.
type Log struct {
	*slog.Logger
	console, fileLevel slog.LevelVar
	file               *file
}

// New opens the log. The error is about the log file alone; a caller that can
// live without one calls New again with File empty.
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

// handler writes in the format that is asked for.
func (o Options) handler(w io.Writer, level slog.Leveler, h head) slog.Handler {
	if o.JSON {
		return newJSONHandler(w, level, o.Name)
	}
	return newHandler(w, level, h)
}

// join makes one handler of many; most programs have one and pay for one.
func join(handlers []slog.Handler) slog.Handler {
	switch len(handlers) {
	case 0:
		return slog.DiscardHandler
	case 1:
		return handlers[0]
	}
	return slog.NewMultiHandler(handlers...)
}

// SetLevels changes the least levels from the next record on: what a daemon
// does when it re-reads its configuration.
func (l *Log) SetLevels(console, file slog.Level) {
	l.console.Set(console)
	l.fileLevel.Set(file)
}

// Reopen opens the path of the log file anew, for when it was moved away by a
// log rotation. After an error the old file stays in use.
func (l *Log) Reopen() error {
	if l.file == nil {
		return nil
	}
	return l.file.reopen()
}

// Close closes the log file; records that come later reach the console only.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// file is a log file that can be opened anew under its writers.
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
	l.f.Close() // appended and never buffered: there is nothing left to lose
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
