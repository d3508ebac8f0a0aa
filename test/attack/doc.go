// Package attack holds the attacks that Brine must outlive: whoever connects can neither
// stop, starve nor fill a daemon. It runs the real programs and attacks them with bare
// clients; it has no code for the programs, and no attacker uses any of theirs.
//
//	go test ./test/attack              each attack in a short form
//	go test ./test/attack -all         those too that the short form leaves out
//	scripts/attack                     in its full size, latency judged too
//	scripts/attack 'unknown keys'      those whose names match
package attack
