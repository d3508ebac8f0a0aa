//go:build unix

package returner

import (
	"context"
	"errors"
	"fmt"
	"log/syslog"
	"net"
	"os"
	"time"
)

// syslogSockets are where the system's log listens: on Linux, on NetBSD and macOS, on FreeBSD.
var syslogSockets = []string{"/dev/log", "/var/run/syslog", "/var/run/log"}

// writeSyslog writes a line to the first of these sockets that somebody listens at. Package log/syslog would wait
// without end for a log that has stopped reading.
func writeSyslog(ctx context.Context, sockets []string, tag string, line []byte) error {
	conn, err := dialSyslog(ctx, sockets)
	if err != nil {
		return fmt.Errorf("connect to syslog: %w", err)
	}
	if until, limited := ctx.Deadline(); limited {
		err = conn.SetWriteDeadline(until)
	}
	if err == nil {
		_, err = fmt.Fprintf(conn, "<%d>%s %s[%d]: %s", syslog.LOG_INFO|syslog.LOG_USER, time.Now().Format(time.Stamp), tag, os.Getpid(), line)
	}
	return errors.Join(err, conn.Close())
}

func dialSyslog(ctx context.Context, sockets []string) (net.Conn, error) {
	var failed error
	for _, path := range sockets {
		for _, network := range []string{"unixgram", "unix"} {
			conn, err := new(net.Dialer).DialContext(ctx, network, path)
			if err == nil {
				return conn, nil
			}
			failed = errors.Join(failed, err)
		}
	}
	return nil, failed
}
