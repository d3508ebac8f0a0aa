package netapi

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/value"
)

// encoding is a form in which answers are given.
type encoding string

const (
	asJSON encoding = "application/json"
	asYAML encoding = "application/x-yaml"
)

// mediaRange is one element of Accept.
type mediaRange struct {
	name, text string
	q          float64
}

// ranges reads a header Accept, what is wanted most first, as CherryPy orders it.
func ranges(header string) []mediaRange {
	var list []mediaRange
	for part := range strings.SplitSeq(header, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, _, _ := strings.Cut(part, ";")
		m := mediaRange{name: strings.TrimSpace(name), text: part, q: 1}
		if _, params, err := mime.ParseMediaType(part); err == nil && params["q"] != "" {
			m.q, _ = strconv.ParseFloat(params["q"], 64)
		}
		list = append(list, m)
	}
	slices.SortStableFunc(list, func(a, b mediaRange) int {
		return cmp.Or(cmp.Compare(b.q, a.q), strings.Compare(b.text, a.text))
	})
	return list
}

// choose returns which of the offered forms a header Accept wants, "" for none.
func choose(header string, offered ...encoding) encoding {
	list := ranges(header)
	if len(list) == 0 {
		return offered[0]
	}
	for _, m := range list {
		if m.q <= 0 {
			continue
		}
		for _, o := range offered {
			major, wild := strings.CutSuffix(m.name, "/*")
			if m.name == string(o) || m.name == "*/*" || wild && strings.HasPrefix(string(o), major+"/") {
				return o
			}
		}
	}
	return ""
}

// acceptable finds the form of the answer.
func (r *request) acceptable() error {
	header := strings.Join(r.Header.Values("Accept"), ", ")
	if r.reply = choose(header, asJSON, asYAML); r.reply == "" {
		return problem(http.StatusNotAcceptable, "Your client sent this Accept header: %s. But this resource only emits these media types: %s, %s.", header, asJSON, asYAML)
	}
	return nil
}

// send answers with data, in the form that was asked for.
func (r *request) send(status int, data any) error {
	var b []byte
	if r.reply == asYAML {
		f, err := output.New("yaml", output.Options{})
		if err != nil {
			return err
		}
		text, err := f.Format(data)
		if err != nil {
			return err
		}
		b = []byte(text)
	} else {
		var err error
		if b, err = value.Encode(data); err != nil {
			return err
		}
	}
	h := r.w.Header()
	h.Set("Content-Type", string(r.reply))
	h.Set("Content-Length", strconv.Itoa(len(b)))
	r.deadline()
	r.w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = r.w.Write(b) // whoever has gone misses it
	}
	return nil
}

// deadline bounds how long the client may take for what is written next.
func (r *request) deadline() {
	_ = http.NewResponseController(r.w).SetWriteDeadline(time.Now().Add(writeTime)) // no connection, in tests, has none
}
