package broker

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/logging"
)

// serverLog passes the server's log on to ours. What the server calls fatal ends the start, not
// the process. Lines about a store that cannot be written also go to health, since the server
// reports them nowhere else.
type serverLog struct {
	log    *slog.Logger
	fatal  chan string
	health *Health
	quiet  bool // of a mirror: lines about its link are left to the code that watches the link

	throttle logging.Throttle // of lines about one connection
	all      logging.Throttle // of lines about all connections together
}

// Limits of the log lines in a minute that peers can cause by trying forbidden operations or by
// not speaking TLS.
const (
	maxViolations = 10 // lines of one connection
	maxOfAll      = 50 // of all connections
	maxRouteLines = 5  // about handshakes at the port of routes
	maxOthers     = 20 // lines of other kinds, of all connections
)

// Errorf logs errors as warnings, since most are about peers. The next line says how many were
// left out in a minute.
func (l *serverLog) Errorf(f string, a ...any) {
	text := fmt.Sprintf(f, a...)
	l.health.heard(text)
	left, tell := l.count(text, time.Now())
	switch {
	case l.quiet, strings.Contains(text, "Error trying to connect to route"): // see nowhere
		l.log.Debug(text)
	case tell:
		l.log.Warn(text, logging.Repeated(left)...)
	}
}

// count reports whether a line is logged, and how many of its kind were left out before.
func (l *serverLog) count(text string, now time.Time) (left int, tell bool) {
	who, _, violation := strings.Cut(text, "Violation")
	switch {
	case violation:
		if !l.throttle.Few(who, now, maxViolations) {
			return 0, false
		}
		return l.all.Count("violations", now, maxOfAll)
	case strings.Contains(text, "TLS route handshake error"):
		if strings.Contains(text, errSelf.Error()) || strings.Contains(text, "no member: ") || strings.Contains(text, "remote error: tls: ") {
			return 0, false // routes has logged it
		}
		return l.all.Count("routes", now, maxRouteLines)
	case strings.Contains(text, "TLS handshake error"), strings.Contains(text, "TLS leafnode handshake error"):
		return l.all.Count("handshake", now, 1)
	case strings.Contains(text, " - cid:"), strings.Contains(text, " - lid:"), strings.Contains(text, " - rid:"):
		return l.all.Count("connections", now, maxOthers)
	}
	return 0, true
}

func (l *serverLog) Noticef(f string, a ...any) { l.log.Debug(fmt.Sprintf(f, a...)) }
func (l *serverLog) Debugf(f string, a ...any)  { l.log.Debug(fmt.Sprintf(f, a...)) }
func (l *serverLog) Tracef(f string, a ...any)  {}

// expected are warnings about what happens in good order.
var expected = []string{
	"Waiting for routing to be established", "failed to be ready for connections", // routes logs which members are not reached; the server expects a listener, which it does not have
	"Metalayer blocking snapshot",
	"Stream state outdated, last block has additional entries", "Recovering stream state from index errored: prior state file", // each start after a kill
}

// Warnf logs warnings, except those that are expected.
func (l *serverLog) Warnf(f string, a ...any) {
	text := fmt.Sprintf(f, a...)
	if strings.Contains(text, "JetStream is enabled but") {
		return
	}
	for _, known := range expected {
		if strings.Contains(text, known) {
			l.log.Debug(text)
			return
		}
	}
	if l.quiet || strings.Contains(text, "hostname of solicited leafnodes") {
		l.log.Debug(text) // about links: the key decides, names in certificates do not matter
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
