package keyring

import "github.com/brinebus/brine/internal/pki"

// Count returns the number of keys in each state.
func (k *Keyring) Count() map[pki.State]int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	n := map[pki.State]int{pki.Pending: 0, pki.Accepted: 0, pki.Rejected: 0, pki.Denied: 0}
	for _, keys := range k.known {
		for _, state := range keys {
			n[state]++
		}
	}
	return n
}
