package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// notices is the socket that systemd would listen on for one daemon, as long as it runs.
type notices struct {
	conn  *net.UnixConn
	name  string        // for NOTIFY_SOCKET
	ready chan struct{} // closed when the daemon has said so

	mu     sync.Mutex
	status string // its latest line
}

var noticeCount atomic.Int64

func listenNotices() (*notices, error) {
	name := fmt.Sprintf("@brine-e2e-%d-%d", os.Getpid(), noticeCount.Add(1))
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	return &notices{conn: c, name: name, ready: make(chan struct{})}, nil
}

// read takes what the daemon says until it has ended.
func (n *notices) read(p *process) {
	go func() {
		<-p.ended
		n.conn.Close()
	}()
	said := sync.OnceFunc(func() { close(n.ready) })
	buf := make([]byte, 4096)
	for {
		k, err := n.conn.Read(buf)
		if err != nil {
			return
		}
		for line := range strings.SplitSeq(string(buf[:k]), "\n") {
			if line == "READY=1" {
				said()
			}
			if status, ok := strings.CutPrefix(line, "STATUS="); ok {
				n.mu.Lock()
				n.status = status
				n.mu.Unlock()
			}
		}
	}
}

// awaitReady waits until the daemon says that it is ready.
func (n *notices) awaitReady(p *process) error {
	late := time.NewTimer(readyTime)
	defer late.Stop()
	select {
	case <-n.ready:
		return nil
	case <-p.ended:
		return fmt.Errorf("%s ended with exit code %d before it was ready:\n%s", p.name, code(p.cmd.ProcessState), tail(p.stderr))
	case <-late.C:
		return fmt.Errorf("%s was not ready within %s:\n%s", p.name, readyTime, tail(p.stderr))
	}
}

// status waits until the line that a service manager shows of a daemon matches.
func status(s *system, _ *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	want, err := regexp.Compile(args[1])
	if err != nil {
		return err
	}
	p, err := s.process(args[0])
	if err != nil {
		return err
	}
	if p.notices == nil {
		return errors.New(args[0] + " is not a daemon")
	}
	var line string
	if !poll(func() bool {
		p.notices.mu.Lock()
		defer p.notices.mu.Unlock()
		line = p.notices.status
		return want.MatchString(line)
	}) {
		return fmt.Errorf("the status of %s is %q, want %q", args[0], line, args[1])
	}
	return nil
}
