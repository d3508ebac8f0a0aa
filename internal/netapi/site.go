package netapi

import (
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// safeHeaders sets headers that keep browsers from misusing the answers.
func (r *request) safeHeaders() {
	h := r.w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	if r.s.opts.TLS {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	if r.s.opts.Expire {
		h.Set("Expires", "0")
	}
}

// corsHeaders sets which pages of other sites may read the answer. A response to a request
// without a cookie may be read by any page that knows a token. What a browser sends with a
// cookie is for this site and those of cors_origin, see sameSite.
func (r *request) corsHeaders() {
	h := r.w.Header()
	origin := r.Header.Get("Origin")
	_, byCookie := r.shown()
	foreign := origin != "" && !r.ownOrigin(origin)
	r.allow = !foreign || r.s.origins[origin] || r.s.origins["*"] && !byCookie || len(r.s.origins) == 0 && !byCookie
	h.Set("Access-Control-Expose-Headers", "GET, POST")
	if !r.allow {
		return
	}
	if origin == "" {
		origin = "*"
	} else {
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		h.Add("Vary", "Origin")
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Allow-Credentials", "true")
}

// ownOrigin reports whether an Origin is the site that the request was sent to.
func (r *request) ownOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// sameSite refuses requests that a page of another site makes a browser send: with the cookie,
// which the browser adds by itself, every request; without the cookie and without a token in
// the header, requests that change something.
func (r *request) sameSite(byCookie bool) error {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	foreign := site == "cross-site" || site == "same-site"
	if origin != "" {
		foreign = !r.ownOrigin(origin)
	}
	if !foreign || r.s.origins[origin] {
		return nil
	}
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	refuse := !safe
	switch {
	case byCookie:
		refuse = !safe || r.route.guards(r.Method)
	case r.Header.Get(tokenHeader) != "":
		return nil // browsers do not add it by themselves
	case !safe && site == "":
		refuse = !r.asksFirst()
	}
	if refuse {
		return problem(http.StatusForbidden, "The request comes from another site, which cors_origin does not name.")
	}
	return nil
}

// asksFirst reports whether a browser sends a preflight before a page of another site may send
// this request. It sends none for what a form can send.
func (r *request) asksFirst() bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind != "" && kind != "text/plain" && kind != "application/x-www-form-urlencoded" && kind != "multipart/form-data"
}

// preflight answers a browser's preflight request.
func (r *request) preflight() bool {
	if r.Method != http.MethodOptions {
		return false
	}
	h := r.w.Header()
	if r.route != nil {
		h.Set("Allow", r.route.allow())
	}
	if r.allow {
		h.Set("Access-Control-Allow-Methods", "GET, POST")
		h.Set("Access-Control-Allow-Headers", "Content-Type, X-Auth-Token, X-Requested-With")
		h.Set("Access-Control-Max-Age", "1400")
	}
	h.Set("Content-Type", "text/html")
	r.w.WriteHeader(http.StatusOK)
	return true
}

// mayCome refuses a user at an address that api_acl does not list for them.
func (s *Server) mayCome(user string, r *request) error {
	if len(s.opts.Users) == 0 {
		return nil
	}
	from, ok := s.opts.Users[user]
	if !ok {
		from = s.opts.Users["*"]
	}
	if slices.ContainsFunc(from, func(a string) bool { return a == "*" || within(a, r.address) }) {
		return nil
	}
	return problem(http.StatusUnauthorized, noPermission)
}
