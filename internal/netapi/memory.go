package netapi

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/rpc"
)

// Limits of the estimated memory of the bodies of requests under way: as they came, and decoded.
// What is sent without a session has limits of its own, so that it leaves room for users who have
// logged in.
const (
	maxBodies      = 128 << 20 // of all addresses together, and of all logins
	maxBodiesOfOne = 64 << 20  // of one address, or one login
	maxDecoded     = 32 << 20  // of one request, if max_request_body_size is as usual
	usualBody      = 1 << 20

	// Limits of what is collected from the master for answers, with the answers that are made of it.
	// One login has room for the largest return with as many parts as there may be.
	maxAnswers      = 512 << 20 // of all logins together
	maxAnswersOfOne = 256 << 20
	entryCost       = 512 // for each return, besides its value

	firstRead = 4 << 10
	yamlCost  = 100 // for each byte of YAML: a node of the parser for each few
	fieldCost = 256 // for each field of a form
	maxFields = 10_000
)

// memory divides the memory for bodies among those who send them, and that for answers.
type memory struct {
	anonymous, users *rpc.Shares // by address, and by login
	answers          *rpc.Shares // by login
	decoded          int         // of one request
}

// newMemory makes room for at least one of the largest bodies that may be sent.
func newMemory(body int64) *memory {
	m := &memory{decoded: int(min(rpc.MaxBuilt, max(1, body/usualBody)*maxDecoded)), answers: rpc.NewShares(maxAnswersOfOne, maxAnswers)}
	one := max(maxBodiesOfOne, 2*int(body)+m.decoded)
	m.anonymous, m.users = rpc.NewShares(one, max(maxBodies, one)), rpc.NewShares(one, max(maxBodies, one))
	return m
}

// hold counts memory for the sender of the request until its end.
func (r *request) hold(n int) error {
	shares, who := r.s.memory.anonymous, block(r.address).String()
	if r.session != nil {
		shares, who = r.s.memory.users, r.session.backend+":"+r.session.user
	}
	if !shares.Take(who, n) {
		return &failure{status: http.StatusTooManyRequests, text: "The requests under way take too much memory.", retry: "2"}
	}
	r.held += n
	r.free = func() { shares.Give(who, r.held) }
	return nil
}

// release gives the memory for the body and the answer back.
func (r *request) release() {
	if r.free != nil {
		r.free()
	}
	for who, n := range r.collected.held {
		r.s.memory.answers.Give(who, n)
	}
}

// collected counts the memory of what one request has collected from the master.
type collected struct {
	built int            // the estimate of maps, lists and entries
	held  map[string]int // all memory, by login
	yaml  bool           // the format of the answer
	last  struct{ built, held int }
}

var errAnswers = errors.New("the answers under way take too much memory")

// collect counts the memory of a text from the master, decoded and again as a part of the answer.
// It is called before the text is decoded, which fails if it does.
func (p *principal) collect(who string, text []byte) error {
	c := &p.collected
	c.last.built, c.last.held = 0, 0
	left := rpc.MaxBuilt - c.built
	if err := rpc.TakeBuilt(text, &left); err != nil {
		return err
	}
	built, encoded := rpc.MaxBuilt-c.built-left, len(text)
	if c.yaml {
		encoded = inYAML(text)
	}
	if err := p.holdAnswer(who, len(text)+built+encoded); err != nil {
		return err
	}
	c.built += built
	c.last.built, c.last.held = built, len(text)+built+encoded
	return nil
}

// inYAML returns how many bytes a JSON text takes at most as YAML. There, each entry, and each word
// of a long text, may begin a line with an indent.
func inYAML(text []byte) int {
	const (
		escaped = 4 // for each byte, if all are escaped, or in base64 with its indents
		indent  = 2 // for each level
	)
	depth, starts, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == '"':
			quoted = !quoted
		case quoted && b == '\\':
			starts += depth
			i++
		case quoted && (b == ' ' || b >= utf8.RuneSelf): // some lines end with other characters
			starts += depth
		case quoted:
		case b == '[' || b == '{':
			depth++
			starts += depth
		case b == ']' || b == '}':
			depth--
		case b == ',' || b == ':':
			starts += depth
		}
	}
	return escaped*len(text) + indent*starts
}

// forget gives back what was collected last: it is no part of the answer, or was sent.
func (p *principal) forget(who string) {
	c := &p.collected
	if c.last.held == 0 {
		return
	}
	c.built -= c.last.built
	c.held[who] -= c.last.held
	p.s.memory.answers.Give(who, c.last.held)
	c.last.built, c.last.held = 0, 0
}

// holdAnswer counts memory for a login until the end of the request.
func (p *principal) holdAnswer(who string, n int) error {
	if !p.s.memory.answers.Take(who, n) {
		return errAnswers
	}
	if p.collected.held == nil {
		p.collected.held = map[string]int{}
	}
	p.collected.held[who] += n
	return nil
}

// readAll reads the body. Its memory is counted as it arrives, and twice, since the decoded texts
// take as much again: a body that is announced and not sent takes no room.
func (r *request) readAll(limit int64) (raw []byte, err error) {
	body := http.MaxBytesReader(r.w, r.Body, limit)
	for {
		if len(raw) == cap(raw) {
			size := max(firstRead, 2*cap(raw))
			if r.ContentLength > 0 {
				size = min(size, int(r.ContentLength)+1) // one more, to see the end
			}
			if err := r.hold(2 * (size - cap(raw))); err != nil {
				return nil, err
			}
			raw = append(make([]byte, 0, size), raw...)
		}
		n, err := body.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		if err == io.EOF {
			return raw, nil
		} else if err != nil {
			return raw, err
		}
	}
}

// holdDecoded counts the memory that the body takes when it is decoded.
func (r *request) holdDecoded(kind string) error {
	left := r.s.memory.decoded
	if err := rpc.TakeBuilt(r.raw, &left); err != nil {
		return problem(http.StatusBadRequest, "%s", err)
	}
	cost := r.s.memory.decoded - left
	switch kind {
	case yamlText:
		cost += yamlCost * len(r.raw)
	case formText:
		cost += fieldCost * min(bytes.Count(r.raw, []byte("&"))+1, maxFields) // those with more are refused
	}
	return r.hold(cost)
}
