package netapi

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// route describes a path and the paths below it.
type route struct {
	name    string // the first part of the path, for the log
	methods map[string]func(*request) error
	parts   int      // how many parts of the path may follow; negative for any number
	params  []string // allowed in the query of GET
	session bool     // needs a session,
	open    []string // except for these methods
	unknown string   // the answer without a session
	tokens  bool     // the token may be in the query
	streams bool     // the answer does not end
	short   bool     // its bodies are small
}

// guards reports whether a method needs a session.
func (t *route) guards(method string) bool { return t.session && !slices.Contains(t.open, method) }

// allow returns the methods for the Allow header.
func (t *route) allow() string {
	var list []string
	for m := range t.methods {
		list = append(list, m)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

type handlers = map[string]func(*request) error

// table returns all routes; those about sessions only if there are sessions.
func (s *Server) table() map[string]*route {
	index := &route{name: "", methods: handlers{"GET": welcome, "HEAD": welcome, "POST": lowstate}, session: true, open: []string{"DELETE", "GET", "HEAD", "PATCH", "PUT"}, unknown: noPermission}
	run := &route{name: "run", methods: handlers{"GET": welcome, "HEAD": welcome, "POST": runLow}}
	hook := &route{name: "hook", methods: handlers{"POST": fireHook}, parts: -1, session: !s.opts.WebhookNoAuth, unknown: noPermission}
	t := map[string]*route{
		"": index, "index": index, "run": run,
		"token":   {name: "token", methods: handlers{"GET": welcome, "HEAD": welcome, "POST": makeToken}, short: true},
		"keys":    {name: "keys", methods: handlers{"GET": getKeys, "HEAD": getKeys, "POST": makeKeys}, parts: 1, params: []string{"mid"}, session: true, open: []string{"POST"}, unknown: noCredentials},
		"events":  {name: "events", methods: handlers{"GET": events, "HEAD": events}, params: []string{"token", "salt_token", "tag", "since", "durable", "match", "last_event_id"}, session: true, unknown: noPermission, tokens: true, streams: true},
		"ws":      {name: "ws", methods: handlers{"GET": websockets}, parts: 1, params: []string{"tag", "since"}, streams: true},
		"metrics": {name: "metrics", methods: handlers{"GET": showMetrics, "HEAD": showMetrics}, session: !s.opts.StatsNoAuth, unknown: noPermission},
		"stats":   {name: "stats", methods: handlers{"GET": showStats, "HEAD": showStats}, session: !s.opts.StatsNoAuth, unknown: noPermission},
	}
	t["favicon.ico"] = &route{name: "favicon.ico", methods: handlers{}}
	if s.opts.Sessions {
		t["login"] = &route{name: "login", methods: handlers{"GET": pleaseLogIn, "HEAD": pleaseLogIn, "POST": logInHere}, short: true}
		t["logout"] = &route{name: "logout", methods: handlers{"POST": logOut}, session: true, unknown: noPermission}
		t["minions"] = &route{name: "minions", methods: handlers{"GET": getMinions, "HEAD": getMinions, "POST": startJobs}, parts: 1, params: []string{"mid"}, session: true, unknown: noPermission}
		t["jobs"] = &route{name: "jobs", methods: handlers{"GET": getJobs, "HEAD": getJobs, "POST": lowstate}, parts: 1, params: []string{"jid", "timeout"}, session: true, unknown: noPermission}
	}
	t[strings.Trim(s.opts.WebhookURL, "/")] = hook
	return t
}

// find finds the route of a path. An unknown path is reported later: it may be a page.
func (r *request) find() error {
	parts := cut(r.URL.Path)
	name := ""
	if len(parts) > 0 {
		name, parts = parts[0], parts[1:]
	}
	hook := strings.Trim(r.s.opts.WebhookURL, "/")
	if rest, ok := strings.CutPrefix(strings.Trim(r.URL.Path, "/")+"/", hook+"/"); ok && hook != "" {
		name, parts = hook, cut(rest)
	}
	r.route, r.rest = r.s.routes[name], parts
	return nil
}

// allowed refuses methods, parts of the path and query parameters that a route does not have.
func (r *request) allowed() error {
	if r.Method == http.MethodPut || r.Method == http.MethodPatch {
		if r.ContentLength < 0 || r.ContentLength == 0 && r.Header.Get("Content-Length") == "" {
			return problem(http.StatusLengthRequired, "Client must specify Content-Length")
		}
	}
	if r.route.methods[r.Method] == nil {
		return &failure{status: http.StatusMethodNotAllowed, text: wrongMethod, allow: r.route.allow()}
	}
	r.w.Header().Set("Allow", r.route.allow())
	if r.route.parts >= 0 && len(r.rest) > r.route.parts {
		return problem(http.StatusNotFound, noSuchURI)
	}
	if r.Method == http.MethodPost {
		return nil
	}
	for name := range r.URL.Query() {
		if !slices.Contains(r.route.params, name) {
			return problem(http.StatusNotFound, noSuchURI)
		}
	}
	return nil
}

// within reports whether a word of the configuration stands for an address.
func within(word string, a netip.Addr) bool {
	if p, err := netip.ParsePrefix(word); err == nil {
		return p.Contains(a)
	}
	one, err := netip.ParseAddr(word)
	return err == nil && one.Unmap() == a
}

// word returns the part of the path, or the query parameter, that names one item.
func (r *request) word(param string) string {
	if len(r.rest) > 0 {
		return r.rest[0]
	}
	return r.URL.Query().Get(param)
}
