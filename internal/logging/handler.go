package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// head appends the part of a line before its message.
type head func(buf []byte, r slog.Record) []byte

// handler writes a record as one line with one Write. Handlers derived from it by WithAttrs and
// WithGroup share its lock.
type handler struct {
	mu     *sync.Mutex
	w      io.Writer
	level  slog.Leveler
	head   head
	attrs  []byte // " key=value" of WithAttrs, formatted once
	prefix string // "group." for each open group
}

func newHandler(w io.Writer, level slog.Leveler, h head) *handler {
	return &handler{mu: new(sync.Mutex), w: w, level: level, head: h}
}

// Enabled reports whether a record of level l is written. At the level quiet, none is.
func (h *handler) Enabled(_ context.Context, l slog.Level) bool {
	return enabled(h.level, l)
}

func enabled(level slog.Leveler, l slog.Level) bool {
	least := level.Level()
	return l >= least && least != LevelQuiet
}

// Handle writes the record. The program must not fail because the log cannot be written; slog
// itself drops the error.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	buf := h.head(make([]byte, 0, 256), r)
	buf = append(buf, Escape(r.Message)...)
	buf = append(buf, h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		buf = appendAttr(buf, h.prefix, a)
		return true
	})
	buf = append(buf, '\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.w.Write(buf)
	return err
}

// WithAttrs returns a handler that adds attrs to each line.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	derived := *h
	derived.attrs = append([]byte(nil), h.attrs...) // siblings must not share its capacity
	for _, a := range attrs {
		derived.attrs = appendAttr(derived.attrs, h.prefix, a)
	}
	return &derived
}

// WithGroup returns a handler that puts "name." before each later attribute.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	derived := *h
	derived.prefix += name + "."
	return &derived
}

// appendAttr appends " key=value", or this for each member of a group.
func appendAttr(buf []byte, prefix string, a slog.Attr) []byte {
	value := a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return buf // slog's rule: ignore an empty attribute
	}
	if value.Kind() == slog.KindGroup {
		if a.Key != "" { // slog's rule: a group without a name is inlined
			prefix += a.Key + "."
		}
		for _, member := range value.Group() {
			buf = appendAttr(buf, prefix, member)
		}
		return buf
	}
	buf = append(buf, ' ')
	buf = append(buf, quote(prefix+a.Key)...)
	buf = append(buf, '=')
	return append(buf, quote(valueText(value))...)
}

// valueText returns the text of v before quoting, or the beginning of a long one.
func valueText(v slog.Value) string {
	s := wholeText(v)
	if more := len(s) - maxValue; more > 0 {
		return fmt.Sprintf("%s... and %d bytes more", s[:maxValue], more)
	}
	return s
}

// maxValue limits a value in bytes: a refused target may have a megabyte. Its sender must not fill
// the log, and it must not be quoted in full for a line that is not written.
const maxValue = 4 << 10

func wholeText(v slog.Value) string {
	switch v.Kind() {
	case slog.KindTime:
		return v.Time().Format(time.RFC3339Nano)
	case slog.KindAny:
		if b, ok := v.Any().([]byte); ok {
			return string(b)
		}
		return fmt.Sprint(v.Any()) // survives a Stringer or error that panics
	}
	return v.String()
}

// quote returns s unchanged if it is a single word, otherwise as a Go string literal.
func quote(s string) string {
	if s == "" || strings.ContainsAny(s, " \"=") || Escape(s) != s {
		return strconv.Quote(s)
	}
	return s
}

// consoleHead begins a line for people; with color, the level is coloured as in Salt.
func consoleHead(color bool) head {
	return func(buf []byte, r slog.Record) []byte {
		name := levelName(r.Level)
		if !color {
			return fmt.Appendf(buf, "[%-8s] ", name)
		}
		return fmt.Appendf(buf, "[\x1b[%sm%-8s\x1b[0m] ", paint(r.Level), name)
	}
}

// paint returns the terminal's escape sequence for the colour of a level.
func paint(l slog.Level) string {
	switch {
	case l >= LevelCritical:
		return "0;1;31"
	case l >= slog.LevelError:
		return "0;31"
	case l >= slog.LevelWarn:
		return "0;33"
	case l >= slog.LevelInfo:
		return "0;32"
	}
	return "0;36"
}

// stamp is the format of a line's date and local time, with milliseconds.
const stamp = "2006-01-02 15:04:05,000"

// fileHead begins a line for a file. In place of Salt's Python module it has the package that logs,
// or program for a record without a source.
func fileHead(program string) head {
	pid := os.Getpid()
	return func(buf []byte, r slog.Record) []byte {
		name, line := source(r.PC, program)
		buf = r.Time.Local().AppendFormat(buf, stamp)
		return fmt.Appendf(buf, " [%-17s:%-4d][%-8s][%d] ", name, line, levelName(r.Level), pid)
	}
}

// source returns the logger name, "salt.pki" for the package internal/pki,
// and the line of the code at pc.
func source(pc uintptr, program string) (name string, line int) {
	if pc == 0 {
		return program, 0
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	pkg, _, _ := strings.Cut(path.Base(frame.Function), ".")
	return "salt." + pkg, frame.Line
}
