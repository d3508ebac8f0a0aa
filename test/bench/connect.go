package bench

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/pki"
)

// workers is how many connections are being made at a time, each by a client
// with a key of its own: enough to keep two cores busy.
const workers = 8

// connects makes n connections, one after the other in each worker, each with a
// full handshake, and returns how many a second. A connection counts when the
// server has answered its first PING, by which time it has been let in.
func connects(ctx context.Context, address string, certificates []tls.Certificate, n int) (float64, error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	failed := make(chan error, len(certificates))
	begin := time.Now()
	for _, c := range certificates {
		wg.Go(func() {
			for next.Add(1) <= int64(n) && ctx.Err() == nil {
				if err := connectOnce(ctx, address, c); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	select {
	case err := <-failed:
		return 0, fmt.Errorf("connect to %s: %w", address, err)
	default:
		return float64(n) / took.Seconds(), ctx.Err()
	}
}

func connectOnce(ctx context.Context, address string, certificate tls.Certificate) error {
	d := net.Dialer{Timeout: limit}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if err := readInfo(c); err != nil {
		return err
	}
	t := tls.Client(c, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true}) //nolint:gosec // a measurement
	r := bufio.NewReader(t)
	connect := fmt.Sprintf(`CONNECT {"user":%q,"name":"bench","verbose":false,"pedantic":false,"tls_required":true,"lang":"go","protocol":1,"echo":true,"headers":true}`+"\r\nPING\r\n", rand.Text())
	if _, err := t.Write([]byte(connect)); err != nil {
		return err
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		switch {
		case strings.HasPrefix(line, "PONG"):
			return nil
		case strings.HasPrefix(line, "-ERR"):
			return fmt.Errorf("refused: %s", strings.TrimSpace(line))
		}
	}
}

// readInfo reads the server's first line and nothing behind it, where TLS begins.
func readInfo(c net.Conn) error {
	b := make([]byte, 1)
	for b[0] != '\n' {
		if _, err := c.Read(b); err != nil {
			return err
		}
	}
	return nil
}

// clients makes the accepted keys of those that only connect.
func clients(s *system) ([]tls.Certificate, error) {
	var certificates []tls.Certificate
	for n := range workers {
		key, err := pki.Generate(pki.Ed25519, 0)
		if err != nil {
			return nil, err
		}
		id := fmt.Sprintf("client%d", n)
		c, err := key.Certificate(id)
		if err != nil {
			return nil, err
		}
		if err := s.admit(id, key); err != nil {
			return nil, err
		}
		certificates = append(certificates, c)
	}
	return certificates, nil
}

// connectRates compares connects a second in turns.
func connectRates(ctx context.Context, s *system, b *bare, rounds, n int) (Row, error) {
	certificates, err := clients(s)
	if err != nil {
		return Row{}, err
	}
	row := Row{What: "connects a second, mTLS, Ed25519", Beside: "server with the same TLS and an authentication callback", Unit: "/s", Ratio: 0.8, More: true}
	for round := range rounds + 1 {
		ours, err := connects(ctx, s.address(), certificates, n)
		if err != nil {
			return row, err
		}
		theirs, err := connects(ctx, b.address, certificates, n)
		if err != nil {
			return row, err
		}
		if round > 0 { // the first warms up
			row.Brine, row.Bare = append(row.Brine, ours), append(row.Bare, theirs)
		}
	}
	return row, nil
}
