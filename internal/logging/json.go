package logging

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"
)

// jsonHandler writes a record as one line of JSON: time, level and msg, the program and its process
// number, and the attributes by name. Texts are escaped as in the other formats, so that a line on
// a terminal cannot control it.
type jsonHandler struct {
	slog.Handler
	level slog.Leveler
}

func newJSONHandler(w io.Writer, level slog.Leveler, program string) slog.Handler {
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: LevelAll, ReplaceAttr: plainAttr})
	return jsonHandler{h.WithAttrs([]slog.Attr{slog.String("program", program), slog.Int("pid", os.Getpid())}), level}
}

// Enabled reports whether a record of level l is written. At the level quiet, none is.
func (h jsonHandler) Enabled(_ context.Context, l slog.Level) bool { return enabled(h.level, l) }

// WithAttrs returns a handler that adds attrs to each line.
func (h jsonHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return jsonHandler{h.Handler.WithAttrs(attrs), h.level}
}

// WithGroup returns a handler that puts later attributes into an object with this name.
func (h jsonHandler) WithGroup(name string) slog.Handler {
	return jsonHandler{h.Handler.WithGroup(Escape(name)), h.level}
}

// plainAttr converts values to what every JSON parser knows: numbers and bools stay, times are in
// UTC, and everything else becomes the text of the other formats.
func plainAttr(groups []string, a slog.Attr) slog.Attr {
	a.Key = Escape(a.Key)
	if level, ok := a.Value.Any().(slog.Level); ok && len(groups) == 0 && a.Key == slog.LevelKey {
		return slog.String(a.Key, levelName(level))
	}
	switch a.Value.Kind() {
	case slog.KindBool, slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindGroup:
		return a
	case slog.KindTime:
		return slog.String(a.Key, a.Value.Time().UTC().Format(time.RFC3339Nano))
	}
	return slog.String(a.Key, Escape(valueText(a.Value)))
}
