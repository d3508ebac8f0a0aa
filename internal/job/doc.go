// Package job defines a job: the signed envelope for minions, their reports, and the state
// machine that follows one job from its start to its last return.
//
// It does no I/O and has no clock: its caller reports what has happened, with the time, and
// gets the consequences.
package job
