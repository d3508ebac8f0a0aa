package rpc

import (
	"bytes"
	"encoding"
	"encoding/json"

	"github.com/brinebus/brine/internal/bus"
)

// Bounds of what a body may become when it is read. Its size alone says little: seven
// bytes of an object in a list take hundreds when they are a map.
const (
	maxDepth = 1000 // levels; what we write has a dozen
	// maxBuilt is what one request with a return or an event may become in memory, by
	// estimate, and smallBuilt any other; one identity's requests together have maxBuilt
	// too, and those of all maxBuiltOfAll.
	maxBuilt   = 128 << 20
	smallBuilt = 32 << 20
	// What the parts of a document are estimated at: a map, a slice, and an entry of one.
	mapCost   = 256
	sliceCost = 48
	entryCost = 24
)

// estimate goes over JSON and returns what it costs at least to build it, and its depth.
// It stops beyond limit. That the JSON is none is for whoever reads it to find.
func estimate(b []byte, limit int) (cost, deepest int) {
	depth := 0
	for i := 0; i < len(b) && cost <= limit && deepest <= maxDepth; i++ {
		switch b[i] {
		case '"':
			i += text(b[i+1:])
		case '{':
			cost += mapCost
			depth++
		case '[':
			cost += sliceCost
			depth++
		case '}', ']':
			depth--
		case ',', ':':
			cost += entryCost
		}
		deepest = max(deepest, depth)
	}
	return cost, deepest
}

// text is how many bytes a string has up to its end, behind its first quote.
func text(b []byte) int {
	for n := 0; ; {
		end := bytes.IndexByte(b[n:], '"')
		if end < 0 {
			return len(b)
		}
		n += end + 1
		escapes := 0
		for back := n - 2; back >= 0 && b[back] == '\\'; back-- {
			escapes++
		}
		if escapes%2 == 0 {
			return n
		}
	}
}

// CheckBuilt refuses, as a Usage error, JSON that would become too much in memory. It is
// asked before anything of it is built, where a message holds further documents.
func CheckBuilt(b []byte) error {
	_, err := built(b, maxBuilt)
	return err
}

// TakeBuilt is CheckBuilt for several documents that are built beside each other: what this
// one becomes is taken from what is left for all.
func TakeBuilt(b []byte, left *int) error {
	cost, err := built(b, *left)
	if err == nil {
		*left -= cost
	}
	return err
}

// MaxBuilt bounds all that one request has built.
const MaxBuilt = maxBuilt

func built(b []byte, limit int) (cost int, err error) {
	cost, depth := estimate(b, limit)
	switch {
	case depth > maxDepth:
		return cost, Errorf(Usage, "it is nested more than %d levels deep", maxDepth)
	case cost > limit:
		return cost, Errorf(Usage, "it has too many parts: they would take more than %d MiB", limit>>20)
	}
	return cost, nil
}

// Decode reads the body into v, which may have a form of its own; what it cannot
// read is a Usage error. What the body would become is bounded before it is built.
func (r *Request) Decode(v any) error {
	var err error
	if m, ok := v.(encoding.BinaryUnmarshaler); ok {
		err = m.UnmarshalBinary(r.Body)
	} else if err = r.bound(); err == nil {
		err = json.Unmarshal(r.Body, v)
	}
	switch {
	case err == nil:
		return nil
	case CodeOf(err) == Busy:
		return err
	}
	return Errorf(Usage, "unreadable request %s: %v", r.Op, err)
}

// bound counts what the body is going to take among what its sender has under way.
func (r *Request) bound() error {
	limit := smallBuilt
	if r.endpoint != nil && r.endpoint.Body >= bus.LargeBody {
		limit = maxBuilt
	}
	cost, err := built(r.Body, limit)
	if err != nil || r.reserve == nil || r.built > 0 {
		return err
	}
	if err := r.reserve(cost); err != nil {
		return err
	}
	r.built = cost
	return nil
}
