package keyring

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Limits of what rules on new keys decide by themselves. Whoever knows a name that they match can show new keys without
// end, and each decision is a file that stays, an audit entry, and in a cluster an entry in the table of all members.
const (
	// MaxAcceptedByRules is up to how many accepted keys rules accept one more: as many as may wait.
	MaxAcceptedByRules = pki.MaxWaiting
	// MaxRejectedByRules is up to how many rejected keys one more is recorded that rules reject. It is refused in any
	// case; the record only shows it to operators.
	MaxRejectedByRules = 1000
	// MaxAcceptedOfHost is how many keys of one host rules accept at once, a whole fleet behind one address; later they
	// accept acceptedPerSecond.
	MaxAcceptedOfHost = pki.MaxWaitingOfHost
	acceptedPerSecond = 1
	// maxHosts is how many hosts are remembered.
	maxHosts = 100_000
)

// ErrLimited is wrapped by an error that is why a rule accepts no key now. An operator can accept it.
var ErrLimited = errors.New("rules on new keys accept no more for now")

// Why a rule does not accept a key, or why its rejection is not recorded.
var (
	errOfHost = salt.WithHint(fmt.Errorf("%w: they have accepted %d of this host, and accept one each second", ErrLimited, MaxAcceptedOfHost),
		"it is accepted later; at once with 'salt-key -a'")
	errAccepted = salt.WithHint(fmt.Errorf("%w: %d keys are accepted, up to which they accept by themselves", ErrLimited, MaxAcceptedByRules),
		"accept it with 'salt-key -a', or delete keys of minions that are gone: 'salt-key -d'")
	errTable = salt.WithHint(fmt.Errorf("%w: they have used their part of what this master may decide about keys that no other one knows", ErrLimited),
		"accept it with 'salt-key -a'")
	errRejected = salt.WithHint(fmt.Errorf("%d keys are rejected, up to which rejections by rules are recorded; this one is refused without a record", MaxRejectedByRules),
		"see the rejected keys with 'salt-key -l rejected', and delete those that nobody needs: 'salt-key -d ID'")
)

// bounds are how many keys rules may still accept, by host.
type bounds struct {
	mu    sync.Mutex
	hosts map[string]spent
}

// spent is how many keys were accepted, less those that time has given back.
type spent struct {
	keys float64
	at   time.Time
}

func (s spent) now(now time.Time) float64 {
	return max(0, s.keys-now.Sub(s.at).Seconds()*acceptedPerSecond)
}

// mayAccept returns why rules accept no key of a host at the moment, nil if they do. host is "" for keys that are
// accepted for another reason than their id.
func (k *Keyring) mayAccept(host string) error {
	k.mu.RLock()
	accepted := len(k.accepted)
	k.mu.RUnlock()
	b := &k.bounds
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case accepted >= cmp.Or(k.MostAccepted, MaxAcceptedByRules):
		return errAccepted
	case b.hosts[host].now(time.Now())+1 > float64(cmp.Or(k.MostOfHost, MaxAcceptedOfHost)):
		return errOfHost
	case k.Room != nil && !k.Room():
		return errTable
	}
	return nil
}

// spend counts a key of a host that rules accept.
func (b *bounds) spend(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if _, known := b.hosts[host]; !known && len(b.hosts) >= maxHosts {
		maps.DeleteFunc(b.hosts, func(_ string, s spent) bool { return s.now(now) == 0 })
		if len(b.hosts) >= maxHosts {
			clear(b.hosts)
		}
	}
	if b.hosts == nil {
		b.hosts = map[string]spent{}
	}
	b.hosts[host] = spent{b.hosts[host].now(now) + 1, now}
}

// mayReject reports whether one more rejected key is recorded for rules.
func mayReject(k *Keyring) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.rejected < cmp.Or(k.MostRejected, MaxRejectedByRules)
}

func rejectedIn(keys map[string]pki.State) (n int) {
	for _, state := range keys {
		if state == pki.Rejected {
			n++
		}
	}
	return n
}

// AcceptsByRule reports whether a rule accepts new keys of id. Such a key waits only while rules accept no more.
func (k *Keyring) AcceptsByRule(id salt.MinionID) (bool, error) {
	k.mu.RLock()
	rules := k.rules
	k.mu.RUnlock()
	if rules.open {
		return true, nil
	}
	act, err := rules.decide(id)
	return act == Accept, err
}
