package netapi

import (
	"errors"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/internal/yamlfile"
)

// Limits of a body.
const (
	bodyTime     = 20 * time.Second // to send it
	maxLoginBody = 64 << 10
	maxYAML      = 256 << 10
	maxValues    = 20_000 // of YAML, with its aliases expanded
)

// The formats of bodies, and the content types that name them.
const (
	jsonText = "JSON"
	yamlText = "YAML"
	formText = "form"
)

var formats = map[string]string{
	"application/json": jsonText, "text/json": jsonText, "text/plain": jsonText,
	"application/x-yaml": yamlText, "text/yaml": yamlText, "application/yaml": yamlText,
	"application/x-www-form-urlencoded": formText,
}

// hurry limits the time in which the body must arrive, even if no handler reads it: the HTTP
// server reads what a refusal leaves of it before it answers.
func (r *request) hurry() {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(r.w).SetReadDeadline(time.Now().Add(bodyTime)) // no connection, in tests, has none
	}
}

// read reads the body of a request, and decodes it if the request is to have one.
func (r *request) read() error {
	if r.ContentLength == 0 {
		return nil
	}
	limit, has := r.s.opts.MaxBody, r.Method == http.MethodPost
	if r.route.short || !has {
		limit = min(limit, maxLoginBody)
	}
	if r.ContentLength > limit {
		return problem(http.StatusRequestEntityTooLarge, "The entity sent with the request exceeds the maximum allowed bytes.")
	}
	raw, err := r.readAll(limit)
	r.s.stats.read.Add(int64(len(raw)))
	var tooLarge *http.MaxBytesError
	var noRoom *failure
	if errors.As(err, &noRoom) {
		return err
	} else if errors.As(err, &tooLarge) {
		return problem(http.StatusRequestEntityTooLarge, "The entity sent with the request exceeds the maximum allowed bytes.")
	} else if err != nil {
		return because(err, http.StatusRequestTimeout, "The body did not arrive.")
	}
	_ = http.NewResponseController(r.w).SetReadDeadline(time.Time{}) // as above
	if len(raw) == 0 || !has {
		return nil
	}
	r.raw = raw
	return r.decode()
}

func (r *request) decode() error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	kind = formats[kind]
	if kind == yamlText && len(r.raw) > maxYAML {
		return problem(http.StatusRequestEntityTooLarge, "A YAML document has at most %d bytes.", maxYAML)
	}
	if err := r.holdDecoded(kind); err != nil {
		return err
	}
	switch kind {
	case jsonText:
		if r.body, err = value.Decode(r.raw); err != nil {
			return problem(http.StatusBadRequest, "Invalid JSON document")
		}
	case yamlText:
		n, err := yamlfile.ParseWithin("request", r.raw, maxValues)
		if err != nil {
			return problem(http.StatusBadRequest, "Invalid YAML document")
		}
		r.body = yamlfile.Value(n)
	case formText:
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

// formed makes a map of a form: a name with several values has a list.
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
