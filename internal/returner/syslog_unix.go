//go:build unix

package returner

import (
	"io"
	"log/syslog"
)

func connectSyslog(tag string) (io.WriteCloser, error) {
	return syslog.New(syslog.LOG_INFO|syslog.LOG_USER, tag)
}
