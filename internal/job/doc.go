// Package job is what a job is: the signed envelope that minions get, the
// reports that they give, and the state machine that follows one job from its
// start to its last return.
//
// It does no I/O and has no clock of its own: it is handed what happened and
// when, and says what that means.
package job
