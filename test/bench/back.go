package bench

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"
)

// comebacks measures how long it takes until all of a fleet are connected again after a
// restart of the master, beside bare clients of a server that is restarted, in turns; and what
// operators wait for meanwhile.
func comebacks(ctx context.Context, s *system, b *bare, ours, theirs *obeying, rounds, n int) ([]Row, error) {
	all := Row{What: fmt.Sprintf("%d minions are back after a restart of the master: wall", n), Beside: "as many clients that subscribe to a subject, of a server", Unit: "ms"}
	away := Row{What: "of that, the master is away", Unit: "ms"}
	keys := Row{What: "`salt-key -L` meanwhile: wall", Unit: "ms"}
	ping := Row{What: "`salt m* test.ping` of those that are back meanwhile: wall", Unit: "ms"}
	for range rounds {
		mine, err := s.comeback(ctx, ours, n, &away, &keys, &ping)
		if err != nil {
			return nil, err
		}
		other, err := b.comeback(theirs, n)
		if err != nil {
			return nil, err
		}
		all.Brine, all.Bare = append(all.Brine, mine), append(all.Bare, other)
	}
	return []Row{all, away, keys, ping}, nil
}

func (s *system) comeback(ctx context.Context, fleet *obeying, n int, away, keys, ping *Row) (float64, error) {
	begin := time.Now()
	s.end(s.cmd["master"])
	if err := s.startMaster(); err != nil {
		return 0, err
	}
	returned := make(chan error, 1)
	took := 0.0
	ended := make(chan struct{})
	go func() {
		_, err := rush(fleet, "back", n)
		took = time.Since(begin).Seconds() * 1e3
		close(ended)
		returned <- err
	}()
	if err := s.listening(ctx); err != nil {
		return 0, err
	}
	away.Brine = append(away.Brine, time.Since(begin).Seconds()*1e3)
	for over := false; !over; {
		select {
		case <-ended:
			over = true // and once more, so that there is a figure
		default:
		}
		list, err := once(ctx, s.program("salt-key"), "-c", s.conf("master"), "-L")
		if err != nil || strings.Count(string(list.out), "\n") < n {
			return 0, fmt.Errorf("salt-key -L says %q: %w", list.out, err)
		}
		pinged, err := once(ctx, s.salt("m*", "test.ping", "--out", "quiet", "--hide-timeout")...)
		if err != nil && !strings.Contains(err.Error(), "exit status 3") { // which is that some are not back
			return 0, err
		}
		keys.Brine, ping.Brine = append(keys.Brine, list.wall.Seconds()*1e3), append(ping.Brine, pinged.wall.Seconds()*1e3)
	}
	return took, <-returned
}

func (b *bare) comeback(fleet *obeying, n int) (float64, error) {
	_, port, err := net.SplitHostPort(b.address)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	b.end(b.server)
	if b.server, _, err = b.startTalking(filepath.Join(b.bin, "bareserver"), "-port", port, filepath.Join(b.dir, "bare")); err != nil {
		return 0, err
	}
	if _, err := rush(fleet, "back", n); err != nil {
		return 0, err
	}
	return time.Since(begin).Seconds() * 1e3, nil
}
