package logging

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"
)

// jsonHandler writes a record as one line of JSON: time, level and msg, the program and
// the number of its process, and the attributes under their names. Texts are escaped as in
// the other formats, so that a line shown on a terminal steers nothing.
type jsonHandler struct {
	slog.Handler
	level slog.Leveler
}

func newJSONHandler(w io.Writer, level slog.Leveler, program string) slog.Handler {
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: LevelAll, ReplaceAttr: plainAttr})
	return jsonHandler{h.WithAttrs([]slog.Attr{slog.String("program", program), slog.Int("pid", os.Getpid())}), level}
}

// Enabled says whether a record of level l would be written. Nothing is at the level quiet.
func (h jsonHandler) Enabled(_ context.Context, l slog.Level) bool { return enabled(h.level, l) }

// WithAttrs returns a handler that adds attrs to each line.
func (h jsonHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return jsonHandler{h.Handler.WithAttrs(attrs), h.level}
}

// WithGroup returns a handler that puts later attributes into an object of this name.
func (h jsonHandler) WithGroup(name string) slog.Handler {
	return jsonHandler{h.Handler.WithGroup(Escape(name)), h.level}
}

// plainAttr makes values of what every reader of JSON knows: numbers and truths stay, times
// are in UTC, and all else is the text that it has in the other formats.
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
