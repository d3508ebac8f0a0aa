package saltevent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/event"
)

func topSpec() cli.Spec {
	return cli.Spec{
		Synopsis: []string{"[options]"},
		Summary: "Watch the bus: events a second by tag and by sender, listeners and positions with what they are behind. " +
			"On a terminal the picture is renewed in place, until Ctrl-C; else one follows the other. For operators.",
		Examples: []string{"salt-event top", "salt-event top --interval 5s --count 1"},
		Flags: append(busFlags(),
			&urcli.StringFlag{Category: "Events", Name: "interval", Aliases: []string{"i"}, Value: "1s", Usage: "renew every `TIME`"},
			&urcli.IntFlag{Category: "Events", Name: "count", Aliases: []string{"n"}, Usage: "stop after `N` pictures"},
		),
		Run: top,
	}
}

// Limits of the output and of what is counted for it.
const (
	topLines = 10
	topKeys  = 10_000 // tags or senders counted separately; the rest is counted together
	topParts = 3      // parts of a tag that count
)

func top(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	if opts.Args().Len() > 0 {
		return cli.Usagef("unexpected word %q", opts.Args().First())
	}
	every, err := cli.Duration(opts, "interval", 10*time.Millisecond)
	if err != nil {
		return err
	}
	ctx, unwatch, err := env.WhileRead(ctx)
	if err != nil {
		return err
	}
	defer unwatch()
	if err := noCredentials(opts, "look at the state of the bus"); err != nil {
		return err
	}
	s, err := openSession(ctx, env, newConnector(env, opts))
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var c counter
	var counting sync.WaitGroup
	defer counting.Wait()
	defer cancel(nil)
	counting.Go(func() { cancel(c.listen(ctx, env, s)) })
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; opts.Int("count") == 0 || n < opts.Int("count"); n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return client.Error(context.Cause(ctx))
		}
		var stat brine.Stat
		if err := s.ask(ctx, func(c *brine.Conn) (err error) { stat, err = c.Stat(ctx); return err }); err != nil {
			return err
		}
		if err := draw(env, &stat, c.take(), every); err != nil {
			return err
		}
	}
	return nil
}

// counter counts events by tag and sender.
type counter struct {
	mu    sync.Mutex
	tally tally
}

type tally struct {
	events, bytes int
	tags, senders map[string]int
}

func (c *counter) listen(ctx context.Context, env *cli.Env, s *session) error {
	src := &source{session: s, env: env, onReady: func(*brine.Listener) error { return nil }}
	defer src.close()
	for {
		got, err := src.next(ctx)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("the daemon has ended the stream of events")
			}
			return err
		}
		c.mu.Lock()
		for _, line := range got.lines {
			c.tally.add(line)
		}
		c.mu.Unlock()
	}
}

func (t *tally) add(line []byte) {
	h, err := event.HeadOf(line)
	if err != nil {
		return
	}
	if t.tags == nil {
		t.tags, t.senders = map[string]int{}, map[string]int{}
	}
	t.events++
	t.bytes += len(line)
	parts := strings.SplitN(h.Tag, "/", topParts+1)
	bump(t.tags, strings.Join(parts[:min(len(parts), topParts)], "/"))
	bump(t.senders, firstOf(h.From, "(the daemon)"))
}

func bump(m map[string]int, key string) {
	if _, known := m[key]; !known && len(m) >= topKeys {
		key = "(others)"
	}
	m[key]++
}

// take returns the counts and resets them.
func (c *counter) take() tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tally
	c.tally = tally{}
	return t
}

// draw writes one picture.
func draw(env *cli.Env, s *brine.Stat, t tally, every time.Duration) error {
	var b bytes.Buffer
	if env.StdoutTTY {
		b.WriteString("\x1b[H\x1b[2J")
	}
	fmt.Fprintf(&b, "%s  %.1f events/s, %s/s\n", time.Now().Format(time.DateTime), rate(t.events, every), size(uint64(rate(t.bytes, every))))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	drawRates(w, "TAG", t.tags, every)
	drawRates(w, "SENDER", t.senders, every)
	if err := w.Flush(); err != nil {
		return err
	}
	sort.Slice(s.Listeners, func(i, j int) bool { return s.Listeners[i].Behind > s.Listeners[j].Behind })
	sort.Slice(s.Positions, func(i, j int) bool { return s.Positions[i].Behind > s.Positions[j].Behind })
	s.Listeners, s.Positions = s.Listeners[:min(topLines, len(s.Listeners))], s.Positions[:min(topLines, len(s.Positions))]
	b.WriteByte('\n')
	if err := writeStat(&b, s); err != nil {
		return err
	}
	_, err := env.Stdout.Write(b.Bytes())
	return err
}

func rate(n int, every time.Duration) float64 { return float64(n) / every.Seconds() }

func drawRates(w io.Writer, title string, m map[string]int, every time.Duration) {
	if len(m) == 0 {
		return
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return m[keys[i]] > m[keys[j]] || m[keys[i]] == m[keys[j]] && keys[i] < keys[j] })
	fmt.Fprintf(w, "\n%s\tEVENTS/S\n", title)
	for _, k := range keys[:min(topLines, len(keys))] {
		fmt.Fprintf(w, "%s\t%.1f\n", k, rate(m[k], every))
	}
}
