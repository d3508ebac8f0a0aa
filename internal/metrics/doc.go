// Package metrics serves the metrics of a daemon to Prometheus, and on the same listener whether
// the daemon is healthy and ready. Its table has all names; the values come from the daemon, which
// is queried at most once a second, however many clients there are.
//
// It is for monitoring programs. What a person may see is decided elsewhere, and nothing here
// contains a job, a tag or a key.
package metrics
