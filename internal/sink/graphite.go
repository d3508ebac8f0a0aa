package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// graphiteTarget is a server for Graphite's plain text protocol: each line has a name, a number and
// a time.
type graphiteTarget struct {
	address string
	metrics *query
}

func readGraphite(s *section, _ string) target {
	host, port := s.need("host"), s.number("port", 2003, 1, 65535)
	t := &graphiteTarget{net.JoinHostPort(host, strconv.Itoa(port)), s.query("metrics")}
	if t.metrics == nil {
		s.wrong("", `"metrics" is needed: a jq expression whose result is an object of names and numbers`)
	}
	return t
}

func (t *graphiteTarget) String() string { return "graphite " + t.address }

func (t *graphiteTarget) dial(ctx context.Context) (*net.TCPConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

func (t *graphiteTarget) check(ctx context.Context) error {
	c, err := t.dial(ctx)
	if err != nil {
		return err
	}
	return c.Close()
}

// open keeps no connection: each batch uses its own.
func (t *graphiteTarget) open(ctx context.Context, log *slog.Logger) (destination, error) {
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	return &graphite{t, log}, nil
}

type graphite struct {
	*graphiteTarget
	log *slog.Logger
}

func (d *graphite) close() {}

// write sends a batch and waits until the server also closes the connection: the protocol has no
// other confirmation that everything was read.
func (d *graphite) write(ctx context.Context, events []Event) error {
	text := collect(d.log, events, nil, func(out []byte, e Event) ([]byte, error) {
		err := d.metrics.each(e.Line, func(v any) (err error) {
			out, err = appendMetrics(out, v, e)
			return err
		})
		return out, err
	})
	if len(text) == 0 {
		return nil
	}
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if limit, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(limit); err != nil {
			return err
		}
	}
	if _, err := c.Write(text); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		return fmt.Errorf("%s has not confirmed by closing the connection: %w", d.address, err)
	}
	return nil
}

// appendMetrics writes an object of names and numbers, one line for each. Null is skipped.
func appendMetrics(out []byte, v any, e Event) ([]byte, error) {
	if v == nil {
		return out, nil
	}
	o, ok := v.(map[string]any)
	if !ok {
		return out, errors.New("an object of names and numbers is wanted")
	}
	moment, ok := e.Stamp()
	if !ok {
		moment = time.Now()
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if o[name] == nil {
			continue
		}
		text, ok := number(o[name])
		if !ok {
			return out, fmt.Errorf("metric %q is not a number", name)
		}
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return out, fmt.Errorf("%q is not the name of a metric: use the function part for text that comes from elsewhere", name)
		}
		out = append(out, name+" "+text+" "+strconv.FormatInt(moment.Unix(), 10)+"\n"...)
	}
	return out, nil
}
