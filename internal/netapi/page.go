package netapi

import (
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"strings"
)

// noApp is shown if app does not name a page.
const noApp = `<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>salt-api</title></head>
<body><p>salt-api serves no web page: rest_cherrypy has no app.</p></body>
</html>
`

// below reports whether a path is dir or below it.
func below(p, dir string) bool {
	dir = "/" + strings.Trim(dir, "/")
	return p == dir || strings.HasPrefix(p, dir+"/")
}

// pages serves the web page and the static files; done is true if it did.
func (r *request) pages() (done bool, err error) {
	get := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case r.s.static != nil && below(r.URL.Path, r.s.opts.StaticPath):
		r.route = &route{name: "static"}
		if !get {
			return true, &failure{status: http.StatusMethodNotAllowed, text: wrongMethod, allow: "GET, HEAD"}
		}
		return true, r.file()
	case below(r.URL.Path, r.s.opts.AppPath):
		r.route = &route{name: "app"}
		if !get {
			return true, &failure{status: http.StatusMethodNotAllowed, text: wrongMethod, allow: "GET, HEAD"}
		}
		return true, r.page()
	case r.s.opts.App != "" && r.wantsPage():
		r.route = &route{name: "app"}
		return true, r.page()
	}
	return false, nil
}

// wantsPage reports whether the client wants HTML: it accepts HTML or sends no Accept header,
// and does not ask for a websocket, which browsers do without an Accept header.
func (r *request) wantsPage() bool {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	accept := strings.Join(r.Header.Values("Accept"), ", ")
	return accept != "*/*" && choose(accept, "text/html") != ""
}

// page sends the web page, or that there is none.
func (r *request) page() error {
	r.w.Header().Set("Content-Type", "text/html;charset=utf-8")
	if r.s.opts.App == "" {
		return r.content(strings.NewReader(noApp), int64(len(noApp)))
	}
	f, err := os.Open(r.s.opts.App)
	if err != nil {
		return because(err, http.StatusNotFound, "The path '%s' was not found.", r.URL.Path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return r.content(f, info.Size())
}

// file sends a static file: only a regular one below the directory.
func (r *request) file() error {
	missing := func(err error) error {
		return because(err, http.StatusNotFound, "The path '%s' was not found.", r.URL.Path)
	}
	name := strings.Trim(strings.TrimPrefix(r.URL.Path, "/"+strings.Trim(r.s.opts.StaticPath, "/")), "/")
	if !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\x00\\") || hidden(name) {
		return missing(fs.ErrInvalid)
	}
	info, err := r.s.static.Stat(name)
	if err != nil || !info.Mode().IsRegular() { // a FIFO would block when opened
		return missing(fs.ErrNotExist)
	}
	f, err := r.s.static.Open(name)
	if err != nil {
		return missing(err)
	}
	defer f.Close()
	kind := mime.TypeByExtension(path.Ext(name))
	if kind == "" {
		kind = "application/octet-stream"
	}
	r.w.Header().Set("Content-Type", kind)
	return r.content(f, info.Size())
}

// hidden reports whether a part of a path begins with a dot: .git, .htpasswd.
func hidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}
