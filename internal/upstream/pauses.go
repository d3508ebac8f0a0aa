package upstream

import (
	"math/rand/v2"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/config"
)

// pauses are the pauses between two rounds without a master.
type pauses struct {
	cfg  *config.Minion
	away backoff.Pauses // after masters that could not be reached
	name backoff.Pauses // after a name without an address
	wait time.Duration  // the latest pause after masters that did not accept this minion
	bar  backoff.Pauses // after masters that have refused it, or were refused
}

// firstPause is short, since most losses are.
const firstPause = 50 * time.Millisecond

// reset is called when a master was in use: the next pause is after a new loss.
func (p *pauses) reset() { *p = pauses{cfg: p.cfg} }

// unreachable is the pause after a round in which no master could be reached: each is twice the
// previous one, up to recon_max.
func (p *pauses) unreachable() time.Duration {
	return p.spread(p.away.Next(min(firstPause, p.cfg.ReconDefault), max(p.cfg.ReconMax, time.Second)))
}

// nameless is the pause after the name of the only master had no address: the same, up to
// retry_dns.
func (p *pauses) nameless() time.Duration {
	return p.spread(p.name.Next(min(firstPause, p.cfg.RetryDNS), p.cfg.RetryDNS))
}

// refused is the pause after masters that could be reached and did not accept this minion yet:
// acceptance_wait_time, each time longer by that up to acceptance_wait_time_max.
func (p *pauses) refused() time.Duration {
	if p.wait == 0 {
		p.wait = p.cfg.AcceptanceWaitTime
	}
	if most := p.cfg.AcceptanceWaitTimeMax; most > 0 {
		p.wait = min(p.wait+p.cfg.AcceptanceWaitTime, most)
	}
	return max(p.wait, firstPause)
}

// longestBar is the limit of the pauses of barred if the configuration sets none: an operator
// has to do something, and a whole fleet may be trying.
const longestBar = 5 * time.Minute

// barred is the pause after masters that have refused this minion, or were refused, for an
// unknown time: acceptance_wait_time, doubled each time up to acceptance_wait_time_max, with a
// random part of up to as much again.
func (p *pauses) barred() time.Duration {
	most := p.cfg.AcceptanceWaitTimeMax
	if most <= 0 {
		most = longestBar
	}
	d := p.bar.Next(max(min(p.cfg.AcceptanceWaitTime, most), firstPause), max(most, firstPause))
	return d + rand.N(d)
}

// spread adds a random part, so that a fleet does not reconnect at once.
func (p *pauses) spread(d time.Duration) time.Duration {
	most := min(d, p.cfg.RandomReauthDelay)
	if !p.cfg.ReconRandomize || most <= 0 {
		return d
	}
	return d + rand.N(most)
}
