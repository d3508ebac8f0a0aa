package keyring

import "github.com/brinebus/brine/internal/pki"

// Count is the number of keys in each state.
type Count map[pki.State]int

// Count returns the number of keys in each state.
func (k *Keyring) Count() Count {
	k.mu.RLock()
	defer k.mu.RUnlock()
	n := Count{pki.Pending: 0, pki.Accepted: 0, pki.Rejected: 0, pki.Denied: 0}
	for _, keys := range k.known {
		for _, state := range keys {
			n[state]++
		}
	}
	return n
}
