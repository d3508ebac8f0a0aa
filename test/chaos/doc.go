// Package chaos treats the daemons badly while they work and counts what that costs: kills,
// stops, restarts, cut and slow cables, full disks, power cuts and damaged files, over real programs
// on disks and hosts of their own. It has no code for the programs, and uses none of theirs:
// what they acknowledged is taken down as a shell script would see it.
//
//	go test ./test/chaos                        a short form, see below
//	scripts/chaos -rounds 200 -seed 7           as many as wanted, the same ones again
//	scripts/chaos -rounds 20 -only power        those kinds whose names begin so
//	scripts/chaos -masters 3 -rounds 200        with three masters that are one system
//
// Meanwhile events are fired, jobs run, and users log in, use their tokens and delete them. With three
// masters the key of a further minion is accepted, rejected and deleted, and a member is sometimes away until
// others have taken over what it had.
//
// Each round is judged when it is over, and all of them once more at the end.
//
// The short form, which is a part of scripts/test, has one round of each of six kinds with one master, and with
// three masters as many rounds as begin within 70 seconds: two on a busy machine, some five on another. They begin with all killed, a member that is
// cut off, a wrong clock, a cut of one direction or a full disk, with another of these each day, so that all of them are
// first within five days. All other kinds are run by scripts/chaos only. The seed is in the output, and -seed repeats it.
//
// The clock of one process is changed in its memory: only that process takes the time for another
// one, not the kernel, nor the programs that it starts.
//
// A power cut shuts an ext4 filesystem on a loop device down in the kernel without a flush
// of its log or its cache, and mounts it again: what the daemon had not synced is gone.
//
// Hosts, disks and daemons are removed at the end, also when the checker itself is killed.
package chaos
