package netapi

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// encoding is a format of answers.
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

// ranges reads an Accept header, the most preferred first, in CherryPy's order.
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

// choose returns which of the offered formats an Accept header prefers, "" for none.
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

// acceptable chooses the format of the answer.
func (r *request) acceptable() error {
	header := strings.Join(r.Header.Values("Accept"), ", ")
	if r.reply = choose(header, asJSON, asYAML); r.reply == "" {
		return problem(http.StatusNotAcceptable, "Your client sent this Accept header: %s. But this resource only emits these media types: %s, %s.", header, asJSON, asYAML)
	}
	r.collected.yaml = r.reply == asYAML
	return nil
}
