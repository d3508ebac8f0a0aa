package broker

import (
	"fmt"
	"log/slog"
	"strings"
)

// serverLog passes the server's words on to our log. What it calls fatal ends
// the start, not the process. What it says of a store that can not be written is for
// health: nobody else is told.
type serverLog struct {
	log    *slog.Logger
	fatal  chan string
	health *Health
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
	l.log.Warn(text)
	l.health.heard(text)
}

func (l *serverLog) Fatalf(f string, a ...any) {
	text := fmt.Sprintf(f, a...)
	select {
	case l.fatal <- text:
	default:
		l.log.Error(text)
	}
}
