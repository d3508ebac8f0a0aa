// Package metrics shows figures of a daemon to Prometheus, and over the same listener
// whether the daemon is healthy and ready. The table in it has all names; the figures
// themselves come from the daemon, which is asked at most once a second however many ask here.
//
// It is for programs that collect figures. What a person may see of the system is decided
// elsewhere, and nothing here knows a job, a tag or a key.
package metrics
