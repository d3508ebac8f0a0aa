package schedule

import (
	"encoding/json"
	"time"
)

// Past is what is known of a job from before a restart: its last handled due time, or with Every, when the
// first of its intervals began. As JSON the former is a time alone.
type Past struct {
	At    time.Time
	Every time.Duration // the interval that began; 0 once the job was due
}

// begun is a Past with Every as JSON.
type begun struct {
	Begun time.Time     `json:"begun"`
	Every time.Duration `json:"every"`
}

// MarshalJSON implements json.Marshaler.
func (p Past) MarshalJSON() ([]byte, error) {
	if p.Every == 0 {
		return json.Marshal(p.At)
	}
	return json.Marshal(begun{p.At, p.Every})
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Past) UnmarshalJSON(b []byte) error {
	var at time.Time
	if json.Unmarshal(b, &at) == nil {
		*p = Past{At: at}
		return nil
	}
	var first begun
	err := json.Unmarshal(b, &first)
	*p = Past{first.Begun, first.Every}
	return err
}

// Equal reports whether p and q are the same.
func (p Past) Equal(q Past) bool { return p.At.Equal(q.At) && p.Every == q.Every }

// goOn takes over what is known of a job that is new to the engine. The beginning of an interval of another
// length says nothing about this one. A time to come, further away than jitter can explain, waits until the
// clock has come there: that may not be set yet.
func (one *entry) goOn(p Past, now time.Time) {
	switch {
	case p.At.IsZero() || p.Every != 0 && p.Every != one.job.Every:
	case p.At.Sub(now) > one.job.Jitter:
		one.ahead = p
	case p.Every != 0:
		one.since = p.At
	default:
		one.last = p.At
	}
}

// catchUp goes on with the jobs that were due, or began, at a time that was to come at the start, but no longer is: the
// clock was not set yet. After maxStep it is taken to be right, and that time to be wrong.
func (e *Engine) catchUp(now time.Time) {
	for _, one := range e.entries {
		switch p := one.ahead; {
		case p.At.IsZero():
		case p.At.Sub(now) <= one.job.Jitter:
			one.ahead = Past{}
			one.goOn(p, now)
			e.plan(one, now)
		case now.Sub(one.from) >= maxStep:
			one.ahead = Past{}
		}
	}
}
