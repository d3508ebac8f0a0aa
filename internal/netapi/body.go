package netapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/internal/yamlfile"
)

// Bounds of a body.
const (
	bodyTime     = 20 * time.Second // to send it
	maxLoginBody = 64 << 10
	maxYAML      = 256 << 10
	maxValues    = 20_000 // of YAML, once its aliases are written out
)

// read reads and decodes the body of a request that has one.
func (r *request) read() error {
	if r.Method != http.MethodPost {
		return nil
	}
	limit := r.s.opts.MaxBody
	if r.route.short {
		limit = min(limit, maxLoginBody)
	}
	if r.ContentLength > limit {
		return problem(http.StatusRequestEntityTooLarge, "The entity sent with the request exceeds the maximum allowed bytes.")
	}
	_ = http.NewResponseController(r.w).SetReadDeadline(time.Now().Add(bodyTime)) // no connection, in tests, has none
	var err error
	r.raw, err = io.ReadAll(http.MaxBytesReader(r.w, r.Body, limit))
	r.s.stats.read.Add(int64(len(r.raw)))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return problem(http.StatusRequestEntityTooLarge, "The entity sent with the request exceeds the maximum allowed bytes.")
	} else if err != nil {
		return because(err, http.StatusRequestTimeout, "The body did not arrive.")
	}
	_ = http.NewResponseController(r.w).SetReadDeadline(time.Time{}) // as above
	if len(r.raw) == 0 {
		return nil
	}
	return r.decode()
}

func (r *request) decode() error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	if err := rpc.CheckBuilt(r.raw); err != nil {
		return problem(http.StatusBadRequest, "%s", err)
	}
	switch kind {
	case "application/json", "text/json":
		if r.body, err = value.Decode(r.raw); err != nil {
			return problem(http.StatusBadRequest, "Invalid JSON document")
		}
	case "text/plain":
		if r.body, err = value.Decode(r.raw); err != nil {
			return problem(http.StatusBadRequest, "Invalid JSON document")
		}
	case "application/x-yaml", "text/yaml", "application/yaml":
		if len(r.raw) > maxYAML {
			return problem(http.StatusRequestEntityTooLarge, "A YAML document has at most %d bytes.", maxYAML)
		}
		n, err := yamlfile.ParseWithin("request", r.raw, maxValues)
		if err != nil {
			return problem(http.StatusBadRequest, "Invalid YAML document")
		}
		r.body = yamlfile.Value(n)
	case "application/x-www-form-urlencoded":
		values, err := url.ParseQuery(string(r.raw))
		if err != nil {
			return problem(http.StatusBadRequest, "Invalid form")
		}
		r.body, r.form = formed(values), true
	default:
		return problem(http.StatusNotAcceptable, "Content type not supported")
	}
	return nil
}

// formed makes a map of a form: what is there several times is a list.
func formed(values url.Values) map[string]any {
	m := map[string]any{}
	for key, list := range values {
		if len(list) == 1 {
			m[key] = list[0]
			continue
		}
		all := make([]any, len(list))
		for i, v := range list {
			all[i] = v
		}
		m[key] = all
	}
	return m
}
