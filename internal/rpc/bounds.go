package rpc

import (
	"bytes"
	"encoding"
	"encoding/json"

	"github.com/brinebus/brine/internal/bus"
)

// Limits of the memory that a body takes when it is decoded. Its size alone says little: seven
// bytes of an object in a list take hundreds as a map.
const (
	maxDepth = 1000 // levels; our own messages have a dozen
	// maxBuilt limits the estimated memory of one request with a return or an event, and also
	// of all requests of one identity together. smallBuilt limits other requests, maxBuiltOfAll
	// the requests of all identities.
	maxBuilt   = 128 << 20
	smallBuilt = 32 << 20
	// Estimated bytes of the parts of a document: a map, a slice, and an entry of one.
	mapCost   = 256
	sliceCost = 48
	entryCost = 24
)

// estimate returns at least how much memory it costs to decode this JSON, and its depth. It
// stops at limit. It does not check that the JSON is valid.
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

// text returns the number of bytes of a string after its first quote, up to its end.
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

// CheckBuilt returns a Usage error for JSON that would take too much memory. It is called
// before any of it is decoded, for documents within a message.
func CheckBuilt(b []byte) error {
	_, err := built(b, maxBuilt)
	return err
}

// TakeBuilt is CheckBuilt for several documents that are in memory together: the estimate for
// this one is subtracted from left.
func TakeBuilt(b []byte, left *int) error {
	cost, err := built(b, *left)
	if err == nil {
		*left -= cost
	}
	return err
}

// MaxBuilt limits everything that is decoded for one request.
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

// Decode decodes the body into v, which may have its own format; what it cannot read is a Usage
// error. The memory for the body is limited before it is decoded.
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

// bound counts the memory for the body among what its sender has under way.
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
