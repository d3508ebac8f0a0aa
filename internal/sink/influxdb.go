package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// influxTarget is the write URL of InfluxDB, or of another service with the same line protocol.
type influxTarget struct {
	endpoint
	points *query
}

func readInflux(s *section, _ string) target {
	t := &influxTarget{readEndpoint(s), s.query("points")}
	if path := s.file("token_file"); path != "" {
		t.secrets["Authorization"] = path
	}
	if t.points == nil {
		s.wrong("", `"points" is needed: a jq expression whose results have measurement, tags and fields`)
	}
	return t
}

func (t *influxTarget) String() string { return "influxdb " + t.endpoint.String() }

func (t *influxTarget) open(_ context.Context, log *slog.Logger) (destination, error) {
	p, err := t.endpoint.open()
	if err != nil {
		return nil, err
	}
	if token := p.header.Get("Authorization"); token != "" && !strings.Contains(token, " ") {
		p.header.Set("Authorization", "Token "+token)
	}
	return &influx{p, t.points, log}, nil
}

// influx is an open influxTarget.
type influx struct {
	*poster
	points *query
	log    *slog.Logger
}

func (d *influx) write(ctx context.Context, events []Event) error {
	var body []byte
	body = collect(d.log, events, body, func(out []byte, e Event) ([]byte, error) {
		err := d.points.each(e.Line, func(v any) (err error) {
			out, err = appendPoint(out, v, e)
			return err
		})
		return out, err
	})
	if len(body) == 0 {
		return nil
	}
	return d.post(ctx, body, "text/plain; charset=utf-8", "")
}

// collect joins what add returns for each event. If add fails for an event, the event gives no
// metric, just as an event does not pass a filter that fails.
func collect(log *slog.Logger, events []Event, out []byte, add func([]byte, Event) ([]byte, error)) []byte {
	failed, first := 0, error(nil)
	for _, e := range events {
		more, err := add(out, e)
		if err == nil {
			out = more
			continue
		}
		if failed++; first == nil {
			first = fmt.Errorf("event %d, tag %q: %w", e.Seq, e.Tag, err)
		}
	}
	if failed > 0 {
		log.Warn("events that yield no metric", "count", failed, "err", first)
	}
	return out
}

// appendPoint writes one point as a line. Its time is that of the event, made unique by the
// sequence: the database stores one point for a time and a set of tags, so a repeated event gives
// the same point.
func appendPoint(out []byte, v any, e Event) ([]byte, error) {
	if v == nil {
		return out, nil
	}
	o, ok := v.(map[string]any)
	name, _ := o["measurement"].(string)
	if !ok || name == "" {
		return out, errors.New("a point is an object with measurement, tags and fields")
	}
	tags, _ := o["tags"].(map[string]any)
	fields, _ := o["fields"].(map[string]any)
	line := append(out, escape(name, ", ")...)
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if text := tagText(tags[k]); text != "" && k != "" {
			line = append(line, ","+escape(k, ",= ")+"="+escape(text, ",= ")...)
		}
	}
	count := 0
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		text, err := fieldText(fields[k])
		if err != nil {
			return out, fmt.Errorf("field %q: %w", k, err)
		}
		if text != "" && k != "" {
			line = append(line, separator(count)+escape(k, ",= ")+"="+text...)
			count++
		}
	}
	if count == 0 {
		return out, nil
	}
	moment, ok := e.Stamp()
	if !ok {
		moment = time.Now()
	}
	line = append(line, ' ')
	return append(strconv.AppendInt(line, moment.UnixNano()+int64(e.Seq%1000), 10), '\n'), nil
}

func separator(count int) string {
	if count == 0 {
		return " "
	}
	return ","
}

// escape puts a backslash before special characters; a line end cannot be escaped.
func escape(text, special string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < ' ':
			r = ' '
			if strings.ContainsRune(special, ' ') {
				b.WriteByte('\\')
			}
		case strings.ContainsRune(special, r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return strings.TrimRight(b.String(), `\`)
}

// tagText returns the value of a tag; null gives no tag.
func tagText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case nil, map[string]any, []any:
		return ""
	}
	text, _ := number(v)
	return text
}

// fieldText returns the value of a field. Numbers are floating-point, since a field keeps the type
// of its first value.
func fieldText(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case bool:
		return strconv.FormatBool(v), nil
	case string:
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(v) + `"`, nil
	}
	text, ok := number(v)
	if !ok {
		return "", errors.New("it is neither a number nor a word")
	}
	return text, nil
}
