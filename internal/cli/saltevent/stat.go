package saltevent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/event"
)

func statSpec() cli.Spec {
	return cli.Spec{
		Complete: complete,
		Synopsis: []string{"[options]"},
		Summary:  "Show what the journal holds, who listens, and how far each is behind. For operators.",
		Examples: []string{"salt-event stat", "salt-event stat --bus minion --format json"},
		Flags:    append(busFlags(), &urcli.StringFlag{Category: "Events", Name: "format", Value: "text", Usage: "print it as `FORM`: text, json"}),
		Run:      stat,
	}
}

func stat(ctx context.Context, env *cli.Env, opts *urcli.Context) error {
	if opts.Args().Len() > 0 {
		return cli.Usagef("unexpected word %q", opts.Args().First())
	}
	if err := noCredentials(opts, "look at the state of the bus"); err != nil {
		return err
	}
	conn, err := newConnector(env, opts)(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := askStat(ctx, env, conn)
	if err != nil {
		return client.Error(err)
	}
	if opts.String("format") == "json" {
		return json.NewEncoder(env.Stdout).Encode(s)
	}
	return writeStat(env.Stdout, &s)
}

func askStat(ctx context.Context, env *cli.Env, conn *brine.Conn) (brine.Stat, error) {
	defer env.Waiting(ctx, cli.Patience, func() string { return "the daemon" })()
	return conn.Stat(ctx)
}

func writeStat(out io.Writer, s *brine.Stat) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	j := s.Journal
	fmt.Fprintf(w, "journal\t%d messages, %s%s\n", j.Count, size(j.Bytes), ofLimit(j))
	if j.Count > 0 {
		fmt.Fprintf(w, "\tseq %d to %d, since %s\n", j.First, j.Last, j.Oldest.Local().Format(time.DateTime))
	}
	if j.Dropped > 0 {
		fmt.Fprintf(w, "\t%d messages dropped by size, earlier than by age\n", j.Dropped)
	}
	if s.Name != "" {
		fmt.Fprintf(w, "\tof the member %s, %s\n", s.Name, handledBy(s.Handler, s.HandlerUnknown, s.Name, true))
	}
	unknown := s.HandlerUnknown
	for _, m := range s.Mirrors {
		unknown = unknown || m.Unread || m.HandlerUnknown
		if s.Name != "" {
			fmt.Fprintf(w, "journal of\t%s, %s, %s, %s\n", m.Master, running(m.Linked), extent(m), handledBy(m.Handler, m.HandlerUnknown, m.Master, m.Linked))
			continue
		}
		fmt.Fprintf(w, "mirror of\t%s, %s\n", m.Master, linked(m, s.Mirrors))
	}
	if unknown && s.Name != "" {
		fmt.Fprintf(w, "\tno leader answers at present, as during an election, which takes some seconds: salt-run cluster.status\n")
	}
	fmt.Fprintf(w, "since %s\t%d events fired, %d sent to listeners\n", s.Started.Local().Format(time.DateTime), s.Fired, s.Sent)
	fmt.Fprintf(w, "dead letters\t%d\n", s.Dead)
	if len(s.Listeners) > 0 {
		fmt.Fprintf(w, "\nLISTENER\tDURABLE\tTAGS\tSENT\tBEHIND\tSINCE\n")
	}
	for _, l := range s.Listeners {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", l.User, l.Durable, strings.Join(l.Tags, " "), l.Sent, l.Behind, l.Started.Local().Format(time.DateTime))
	}
	if len(s.Positions) > 0 {
		fmt.Fprintf(w, "\nPOSITION\tUSER\tSEQ\tBEHIND\tHELD\tCONFIRMED\n")
	}
	for _, p := range s.Positions {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%v\t%s\n", p.Name, p.User, positionOf(p), p.Behind, p.Held, p.Time.Local().Format(time.DateTime))
	}
	return w.Flush()
}

// positionOf writes where a position is: in a cluster with the names of journals.
func positionOf(p brine.PositionStat) string {
	switch {
	case p.Journal != "":
		return event.Position{p.Journal: p.Seq}.String()
	case len(p.At) > 0:
		return event.Position(p.At).String()
	}
	return strconv.FormatUint(p.Seq, 10)
}

// handledBy says which member of a cluster handles the events of a journal. The one that is away still counts as such
// until its lease has ended.
func handledBy(by string, unknown bool, journal string, runs bool) string {
	switch {
	case unknown:
		return "who handles its events is not known"
	case by == "":
		return "its events are not handled at present"
	case by == journal && !runs:
		return "its events were handled there, and no other member has taken over yet"
	case by == journal:
		return "its events are handled there"
	}
	return "its events are handled by " + by
}

// unread is what is said of figures that are not known.
const unread = "how much it holds is not known"

// extent says how much the journal of another member holds.
func extent(m brine.MirrorStat) string {
	if m.Unread {
		return unread
	}
	return fmt.Sprintf("to seq %d, %s", m.Last, size(m.Bytes))
}

func running(is bool) string {
	if is {
		return "running"
	}
	return "its member is away"
}

// linked says how far a mirror is. Without a link, nobody here knows what is new in the journal; behind is what was
// known to be missing before. all are the mirrors, which are of journals of one master: it has one at a time.
func linked(m brine.MirrorStat, all []brine.MirrorStat) string {
	at, bytes := fmt.Sprintf("to seq %d", m.Last), size(m.Bytes)
	if m.Linked && !m.Unread {
		return fmt.Sprintf("linked, %s, %d behind, %s", at, m.Lag, bytes)
	}
	if m.Linked {
		return "linked, " + unread
	}
	why := "its master is away"
	if slices.ContainsFunc(all, func(other brine.MirrorStat) bool { return other.Linked }) {
		why = "its master has another journal now"
	}
	switch {
	case m.Unread:
		return why + ", " + unread
	case m.Lag > 0:
		return fmt.Sprintf("%s, %s, at least %d behind, %s", why, at, m.Lag, bytes)
	}
	return fmt.Sprintf("%s, %s, unknown how far behind, %s", why, at, bytes)
}

func ofLimit(j brine.JournalStat) string {
	text := ""
	if j.Limit > 0 {
		text = " of " + size(uint64(j.Limit))
	}
	if j.MaxAge > 0 {
		text += ", kept " + j.MaxAge.Truncate(time.Second).String()
	}
	return text
}

// size writes bytes for people.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
