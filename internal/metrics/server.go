package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Source is the daemon whose metrics are served. Only one goroutine at a time calls it.
type Source interface {
	// Samples returns the current values. Unavailable ones are omitted.
	Samples(ctx context.Context) []Sample
	// Healthy returns what is wrong with a daemon that runs but does not serve.
	Healthy(ctx context.Context) error
	// Ready returns what a daemon that does not work yet is waiting for.
	Ready() error
}

const (
	askPause    = time.Second // minimum time between two queries of the daemon
	askTime     = 4 * time.Second
	headerTime  = 2 * time.Second  // for a client to send its request
	requestTime = 10 * time.Second // from then to the end of the answer
	maxHeader   = 8 << 10
)

// Serve answers GET /metrics, /healthz and /readyz on l until ctx ends, and closes it.
func Serve(ctx context.Context, l net.Listener, from Source, latency Latency, log *slog.Logger) {
	s := &http.Server{
		Handler:           handler(&asked{source: from}, latency, log),
		ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: requestTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	s.SetKeepAlivesEnabled(false) // a rare client needs no connection in between
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		s.Close()
	})
	if err := s.Serve(newListener(l)); !errors.Is(err, http.ErrServerClosed) {
		log.Error("the metrics are not served any more", "err", err)
	}
	if !stop() {
		<-stopped
	}
}

func handler(a *asked, latency Latency, log *slog.Logger) http.Handler {
	r := prometheus.NewRegistry()
	ours := prometheus.WrapRegistererWithPrefix(Prefix, r)
	ours.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(a)
	if latency != nil {
		r.MustRegister(latency)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, Timeout: requestTime / 2,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { answer(w, a.healthy()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		err := a.source.Ready()
		if err == nil {
			err = a.healthy()
		}
		answer(w, err)
	})
	return mux
}

func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	text := "ok"
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error()
	}
	_, _ = w.Write([]byte(text + "\n")) // the client may be gone
}

// asked queries the daemon, and caches the result for a moment.
type asked struct {
	source Source

	figures sync.Mutex
	samples []Sample
	at      time.Time

	health  sync.Mutex
	err     error
	checked time.Time
}

// Describe implements prometheus.Collector.
func (a *asked) Describe(to chan<- *prometheus.Desc) {
	for _, m := range table {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (a *asked) Collect(to chan<- prometheus.Metric) {
	a.figures.Lock()
	defer a.figures.Unlock()
	if time.Since(a.at) >= askPause {
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		defer cancel()
		a.samples = a.source.Samples(ctx)
		a.at = time.Now()
	}
	for _, s := range a.samples {
		to <- s.constant()
	}
}

func (a *asked) healthy() error {
	a.health.Lock()
	defer a.health.Unlock()
	if time.Since(a.checked) >= askPause {
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		defer cancel()
		a.err = a.source.Healthy(ctx)
		a.checked = time.Now()
	}
	return a.err
}
