package broker

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// serverLog passes the server's words on to our log. What it calls fatal ends
// the start, not the process. What it says of a store that can not be written is for
// health: nobody else is told.
type serverLog struct {
	log    *slog.Logger
	fatal  chan string
	health *Health

	mu         sync.Mutex
	violations map[string]int // of each connection, since minute
	others     int            // other lines about connections, since minute
	minute     time.Time
}

// Bounds of what connections may fill the log with by trying what they may not, or
// by speaking no TLS.
const (
	maxViolations = 10 // lines of one connection in a minute
	maxViolators  = 1000
	maxOthers     = 100 // lines of all connections in a minute
)

// repeated says whether a line is one too many about a connection. What was left out
// in a minute is told by its number with the next line.
func (l *serverLog) repeated(text string, now time.Time) bool {
	who, _, violation := strings.Cut(text, "Violation")
	if !violation && !strings.Contains(text, " - cid:") {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.minute) > time.Minute || l.violations == nil || len(l.violations) > maxViolators {
		if l.others > maxOthers {
			l.log.Warn("more connections went wrong", "repeated", l.others-maxOthers)
		}
		l.violations, l.others, l.minute = map[string]int{}, 0, now
	}
	if !violation {
		l.others++
		return l.others > maxOthers
	}
	l.violations[who]++
	return l.violations[who] > maxViolations
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
	l.log.Warn(text)
}

// Errorf passes errors on as warnings, since most are about peers.
func (l *serverLog) Errorf(f string, a ...any) {
	text := fmt.Sprintf(f, a...)
	l.health.heard(text)
	if !l.repeated(text, time.Now()) {
		l.log.Warn(text)
	}
}

func (l *serverLog) Fatalf(f string, a ...any) {
	text := fmt.Sprintf(f, a...)
	select {
	case l.fatal <- text:
	default:
		l.log.Error(text)
	}
}
