package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Prefix begins every name, including those of the process and of the Go runtime.
const Prefix = "salt_"

// Metric is a row of the table. Its labels have few values, none of which outsiders can choose: no
// tag, no job id, no id of an unaccepted key.
type Metric struct {
	Name   string
	Labels []string
	Help   string
	kind   prometheus.ValueType
	desc   *prometheus.Desc
}

// Sample is one value.
type Sample struct {
	Metric *Metric
	Value  float64
	Labels []string // values, in the order of the labels of the metric
}

// Is returns a sample of the metric.
func (m *Metric) Is(value float64, labels ...string) Sample { return Sample{m, value, labels} }

// The metrics of the daemons. A counter starts at 0 with the daemon, and its name ends with _total.
var (
	BuildInfo         = gauge("build_info", "Always 1; the labels say which daemon of which version this is.", "daemon", "version")
	ClusterClock      = gauge("cluster_clock_ahead_seconds", "By how much the clock of another member of the cluster is at least ahead of that of this one; negative if it is behind.", "member")
	ClusterLacking    = gauge("cluster_lacking", "Streams of the cluster that do not have all their copies, as far as this member knows.")
	ClusterMembers    = gauge("cluster_members", "Members of the cluster that should run: those in cluster_peers that were not removed and have not left in good order.")
	ClusterRunning    = gauge("cluster_members_running", "Those of them that run, this one included.")
	ClusterRules      = gauge("cluster_rules_differ", "1 if the access rules of another member of the cluster, or settings that guard them, differ from those of this one.", "member")
	Connections       = gauge("connections", "Connections to the bus of the daemon, by the role of who is connected.", "role")
	DeadDropped       = counter("dead_letters_dropped_total", "Dead letters of the reactor that gave way to newer ones.")
	Decisions         = counter("decisions_total", "Decisions about who may do what, as they stand in the audit log.", "verdict")
	Events            = counter("events_total", "Events that the journal has taken, by the kind of who fired them.", "origin")
	Jobs              = gauge("jobs", "Jobs that the daemon has under way, by their state.", "state")
	JournalBytes      = gauge("journal_bytes", "Size of the journal.")
	JournalDropped    = counter("journal_dropped_total", "Messages that left the journal because of its size, earlier than by age.")
	JournalLimit      = gauge("journal_limit_bytes", "Size beyond which the journal drops the oldest; 0 means no limit.")
	JournalMessages   = gauge("journal_messages", "Messages in the journal; a long event takes several.")
	JournalMirrorLag  = gauge("journal_mirror_lag_messages", "Messages of another master's journal that are not mirrored here yet, as far as is known.", "master")
	JournalMirrorLink = gauge("journal_mirror_linked", "1 while the master whose journal is mirrored here is linked.", "master")
	Keys              = gauge("keys", "Keys of minions, by their state.", "state")
	ListenerLag       = gauge("listener_lag_events", "Events that a durable listener has not confirmed yet. Of many listeners those with the most.", "user", "listener")
	Listeners         = gauge("listeners", "Durable listeners whose position is kept.")
	MasterConnected   = gauge("master_connected", "1 while the minion is connected to this master or, of a failover list, to one in its place.", "master")
	MinionsConnected  = gauge("minions_connected", "Minions that are connected and have said hello.")
	OutboxMessages    = gauge("outbox_messages", "Messages that wait on this minion until its master has stored them.", "master")
	Reconnects        = counter("reconnects_total", "Connections to its masters that the minion has made beyond the first to each.")
	SlowConsumers     = counter("slow_consumers_total", "Connections that the bus has cut because they did not read what was sent to them.")
	StoreFailed       = gauge("store_failed", "1 while the journal cannot be written.")
	returnSeconds     = Prefix + "return_seconds"
	returnSecondsHelp = "Time from the start of a job to each of its returns."
)

// table lists all metrics, sorted by name.
var table = []*Metric{
	BuildInfo, ClusterClock, ClusterLacking, ClusterMembers, ClusterRunning, ClusterRules, Connections, DeadDropped, Decisions, Events, Jobs, JournalBytes, JournalDropped, JournalLimit, JournalMessages, JournalMirrorLag, JournalMirrorLink, Keys, ListenerLag, Listeners,
	MasterConnected, MinionsConnected, OutboxMessages, Reconnects, SlowConsumers, StoreFailed,
}

func gauge(name, help string, labels ...string) *Metric {
	return newMetric(name, help, prometheus.GaugeValue, labels)
}

func counter(name, help string, labels ...string) *Metric {
	return newMetric(name, help, prometheus.CounterValue, labels)
}

func newMetric(name, help string, kind prometheus.ValueType, labels []string) *Metric {
	name = Prefix + name
	return &Metric{Name: name, Labels: labels, Help: help, kind: kind, desc: prometheus.NewDesc(name, help, labels, nil)}
}

// constant converts a sample to a Prometheus metric.
func (s Sample) constant() prometheus.Metric {
	m, err := prometheus.NewConstMetric(s.Metric.desc, s.Metric.kind, s.Value, s.Labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(s.Metric.desc, fmt.Errorf("%s: %w", s.Metric.Name, err))
	}
	return m
}

// Latency records durations in seconds. It may be used concurrently, without blocking.
type Latency = prometheus.Histogram

// NewReturnLatency returns the histogram for the latency of returns.
func NewReturnLatency() Latency {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: returnSeconds, Help: returnSecondsHelp,
		Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600},
	})
}
