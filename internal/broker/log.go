package broker

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/logging"
)

// serverLog passes the server's words on to our log. What it calls fatal ends
// the start, not the process. What it says of a store that cannot be written is for
// health: nobody else is told.
type serverLog struct {
	log    *slog.Logger
	fatal  chan string
	health *Health
	quiet  bool // a mirror's: what it says of its link is told by who watches that

	throttle logging.Throttle // of lines about connections
	all      logging.Throttle // of those about all connections together
}

// Bounds of what connections may fill the log with in a minute, by trying what they may not
// or by speaking no TLS.
const (
	maxViolations = 10 // lines of one connection
	maxOfAll      = 50 // and of all of them
	maxOthers     = 20 // lines that say something else, of all connections
)

// Errorf passes errors on as warnings, since most are about peers. What was left out in a
// minute is told by its number with the next line.
func (l *serverLog) Errorf(f string, a ...any) {
	text := fmt.Sprintf(f, a...)
	l.health.heard(text)
	left, tell := l.count(text, time.Now())
	switch {
	case l.quiet:
		l.log.Debug(text)
	case tell:
		l.log.Warn(text, logging.Repeated(left)...)
	}
}

// count says whether a line is told, and how many of its kind were not.
func (l *serverLog) count(text string, now time.Time) (left int, tell bool) {
	who, _, violation := strings.Cut(text, "Violation")
	switch {
	case violation:
		if !l.throttle.Few(who, now, maxViolations) {
			return 0, false
		}
		return l.all.Count("violations", now, maxOfAll)
	case strings.Contains(text, "TLS handshake error"), strings.Contains(text, "TLS leafnode handshake error"):
		return l.all.Count("handshake", now, 1)
	case strings.Contains(text, " - cid:"), strings.Contains(text, " - lid:"):
		return l.all.Count("connections", now, maxOthers)
	}
	return 0, true
}

func (l *serverLog) Noticef(f string, a ...any) { l.log.Debug(fmt.Sprintf(f, a...)) }
func (l *serverLog) Debugf(f string, a ...any)  { l.log.Debug(fmt.Sprintf(f, a...)) }
func (l *serverLog) Tracef(f string, a ...any)  {}

// Warnf passes warnings on, but for those that every start of ours would have.
func (l *serverLog) Warnf(f string, a ...any) {
	text := fmt.Sprintf(f, a...)
	if strings.Contains(text, "JetStream is enabled but") {
		return
	}
	if l.quiet || strings.Contains(text, "hostname of solicited leafnodes") {
		l.log.Debug(text) // of links: names in certificates decide nothing, the key does
		return
	}
	l.log.Warn(text)
}

func (l *serverLog) Fatalf(f string, a ...any) {
	text := fmt.Sprintf(f, a...)
	select {
	case l.fatal <- text:
	default:
		l.log.Error(text)
	}
}
