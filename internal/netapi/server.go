package netapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/logging"
)

// Options are the settings of a Server, with the names of Salt's rest_cherrypy. The zero value
// of a switch is off.
type Options struct {
	// Dial connects to the master, without a login yet.
	Dial func(context.Context) (*client.Conn, error)
	Log  *slog.Logger

	Timeout        time.Duration // how long a minion may be silent
	Clients        []string      // that are enabled: netapi_enable_clients
	TLS            bool          // served with TLS: cookies are marked Secure
	Sessions       bool          // logins can be sessions: enable_sessions
	Expire         bool          // responses are marked as expired: expire_responses
	MaxBody        int64         // bytes of a request: max_request_body_size
	Origins        []string      // other sites whose pages may use the server: cors_origin
	WebhookURL     string
	WebhookNoAuth  bool
	StatsNoAuth    bool
	App            string // the file of the web page
	AppPath        string
	Static         string // the directory of static files
	StaticPath     string
	AuthorizedIPs  []netip.Prefix
	Users          map[string][]string // by api_acl: addresses, or *, from which each may come
	StreamsOfLogin int                 // event streams of one login; 0 is the usual limit
}

// Server answers HTTP requests. Close ends it.
type Server struct {
	opts     Options
	log      *slog.Logger
	pool     *pool
	sessions *sessions
	limits   *limits
	memory   *memory
	routes   map[string]*route
	origins  map[string]bool
	static   *os.Root // nil if there are no static files
	stats    stats

	throttle    logging.Throttle // of lines about one address
	throttleAll logging.Throttle // of lines about all addresses together

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// stats counts what was served.
type stats struct {
	started           time.Time
	requests, current atomic.Int64
	read, written     atomic.Int64
	refused, streams  atomic.Int64
}

// New checks the options and makes a server.
func New(o Options) (*Server, error) {
	s := &Server{opts: o, log: o.Log, origins: map[string]bool{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.stats.started = time.Now()
	for _, origin := range o.Origins {
		s.origins[origin] = true
	}
	if o.Static != "" {
		root, err := os.OpenRoot(o.Static)
		if err != nil {
			return nil, err
		}
		s.static = root
	}
	if o.App != "" {
		if _, err := os.Stat(o.App); err != nil {
			return nil, err
		}
	}
	s.limits = newLimits(o.StreamsOfLogin)
	s.memory = newMemory(o.MaxBody)
	s.pool = newPool(o.Dial)
	s.sessions = newSessions()
	s.routes = s.table()
	s.wg.Go(s.sweep)
	return s, nil
}

// Close ends all streams and all connections to the master.
func (s *Server) Close() {
	s.stop()
	s.wg.Wait()
	s.pool.close()
	if s.static != nil {
		_ = s.static.Close() // it was opened for reading
	}
}

// sweepEvery is how often expired sessions and unused connections to the master are removed.
const sweepEvery = 10 * time.Second

func (s *Server) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-tick.C:
			s.sessions.sweep(now)
			s.pool.sweep(now)
		}
	}
}

// request is one HTTP request being handled, its sender, and the answer.
type request struct {
	*http.Request
	answer
	principal
	route *route
	rest  []string // parts of the path after the route's name
	body  any      // decoded
	raw   []byte   // the body
	form  bool
	allow bool   // its Origin is a site whose pages may read the answer
	held  int    // memory for the body
	free  func() // gives it back; nil for none
}

// recorder records what was sent.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

// Unwrap implements what http.ResponseController needs.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// writeTime is how long a client may take to read a piece of an answer.
const writeTime = 30 * time.Second

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	begun := time.Now()
	rec := &recorder{ResponseWriter: w}
	r := &request{Request: hr, answer: answer{w: rec, head: hr.Method == http.MethodHead}, principal: principal{s: s, address: addressOf(hr)}}
	s.stats.requests.Add(1)
	s.stats.current.Add(1)
	defer s.stats.current.Add(-1)
	err := s.serve(r)
	if err != nil {
		r.fail(err)
	}
	s.stats.written.Add(rec.bytes)
	s.tell(r, rec.status, time.Since(begun), err)
}

// Limits of the log lines in a minute about requests that are refused, or that anybody may make.
const (
	maxRefusedLines    = 10 // of one address
	maxRefusedLinesAll = 60
)

// tell logs a request: who, from where, and the result. It logs no headers and no query, where
// a token may be.
func (s *Server) tell(r *request, status int, took time.Duration, err error) {
	name := "?"
	if r.route != nil {
		name = r.route.name
	}
	level := slog.LevelInfo
	attrs := []any{"method", knownMethod(r.Method), "path", "/" + name, "status", status, "source", r.address.String(), "user", r.user(), "ms", took.Milliseconds()}
	if err != nil {
		attrs = append(attrs, "reason", reason(err))
	}
	if status == http.StatusUnauthorized || status == http.StatusForbidden || status >= 500 {
		level = slog.LevelWarn
		s.stats.refused.Add(1)
	}
	if err != nil || r.session == nil && r.Method != http.MethodPost {
		left, tell := s.countLine(block(r.address).String(), time.Now())
		if !tell {
			return
		}
		attrs = append(attrs, logging.Repeated(left)...)
	}
	s.log.Log(r.Context(), level, "request", attrs...)
}

// countLine counts a line about an address. It reports whether to write it, and how many were left out
// before.
func (s *Server) countLine(who string, now time.Time) (left int, tell bool) {
	left, tell = s.throttle.Count(who, now, maxRefusedLines)
	if !tell {
		return 0, false
	}
	others, tell := s.throttleAll.Count("requests", now, maxRefusedLinesAll)
	return left + others, tell
}

// knownMethod keeps arbitrary text of the caller out of the log.
func knownMethod(m string) string {
	if slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, m) {
		return m
	}
	return "other"
}

// addressOf is the address of the connection; headers do not count.
func addressOf(r *http.Request) netip.Addr {
	if a, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return a.Addr().Unmap().WithZone("")
	}
	return netip.IPv6Unspecified()
}

func (s *Server) serve(r *request) error {
	r.hurry()
	r.safeHeaders()
	r.corsHeaders()
	if err := r.find(); err != nil {
		return err
	}
	if err := s.fromHere(r); err != nil {
		return err
	}
	leave, err := s.limits.enter(r.address)
	if err != nil {
		return err
	}
	defer leave()
	if r.preflight() {
		return nil
	}
	if done, err := r.pages(); done || err != nil {
		return err
	}
	if r.route == nil {
		return problem(http.StatusNotFound, "The path '%s' was not found.", r.URL.Path)
	}
	if err := r.authenticate(); err != nil {
		return err
	}
	if err := r.allowed(); err != nil {
		return err
	}
	defer r.release()
	if err := r.read(); err != nil {
		return err
	}
	return r.route.methods[r.Method](r)
}

// fromHere refuses addresses that are not in authorized_ips.
func (s *Server) fromHere(r *request) error {
	if len(s.opts.AuthorizedIPs) == 0 || slices.ContainsFunc(s.opts.AuthorizedIPs, func(p netip.Prefix) bool { return p.Contains(r.address) }) {
		return nil
	}
	return problem(http.StatusForbidden, "Bad IP")
}

// cut splits a path into its parts.
func cut(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// Serve serves on a listener, with TLS if secure is not nil, until ctx ends. Then it gives
// running requests a short time to end.
func (s *Server) Serve(ctx context.Context, l net.Listener, secure *tls.Config) error {
	hs := &http.Server{
		Handler: s, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
	}
	conns := s.limits.listen(l)
	if l = conns; secure != nil {
		l = tls.NewListener(l, secure)
	}
	failed := make(chan error, 1)
	go func() { failed <- hs.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.stop() // this ends streams
	closing, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	defer context.AfterFunc(closing, conns.closeAll)() // Shutdown itself may wait for a connection
	err := hs.Shutdown(closing)
	if err != nil {
		err = hs.Close()
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Limits in time and size before a request is known.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	closeTime  = 5 * time.Second
	maxHeader  = 32 << 10 // Last-Event-ID may be a position of event.MaxPosition bytes
)
