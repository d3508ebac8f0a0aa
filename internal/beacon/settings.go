package beacon

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// settings are those of one beacon. A setting that is read is removed; whatever is left at the end
// is an error.
type settings struct {
	rest     map[string]any
	mistakes []error
}

// newSettings reads a dictionary, or Salt's list of dictionaries with one key each.
func newSettings(v any) (*settings, error) {
	s := &settings{rest: map[string]any{}}
	switch v := v.(type) {
	case nil:
	case map[string]any:
		maps.Copy(s.rest, v)
	case []any:
		for _, item := range v {
			one, ok := item.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("%v is not a setting: a list of settings with their values is wanted", item)
			}
			for key, value := range one {
				if _, twice := s.rest[key]; twice {
					return nil, fmt.Errorf("%s is there twice", key)
				}
				s.rest[key] = value
			}
		}
	default:
		return nil, errors.New("a list of settings with their values is wanted")
	}
	return s, nil
}

func (s *settings) take(key string) any {
	v := s.rest[key]
	delete(s.rest, key)
	return v
}

func (s *settings) ignore(key string) { s.take(key) }

func (s *settings) wrong(key string, v any, want string) {
	s.mistakes = append(s.mistakes, fmt.Errorf("%s is %v: %s is wanted", key, v, want))
}

func (s *settings) text(key, otherwise string) string {
	switch v := s.take(key).(type) {
	case nil:
		return otherwise
	case string:
		return v
	default:
		s.wrong(key, v, "text")
		return ""
	}
}

func (s *settings) truth(key string, otherwise bool) bool {
	switch v := s.take(key).(type) {
	case nil:
		return otherwise
	case bool:
		return v
	default:
		s.wrong(key, v, "true or false")
		return false
	}
}

// maxInterval limits the interval of a beacon.
const maxInterval = 366 * 24 * time.Hour

func (s *settings) duration(key string, otherwise time.Duration) time.Duration {
	v := s.take(key)
	if v == nil {
		return otherwise
	}
	d, err := salt.ParseDuration(fmt.Sprint(v), time.Second)
	if err != nil || d < 100*time.Millisecond || d > maxInterval {
		s.wrong(key, v, "a time of 0.1 seconds to a year")
		return otherwise
	}
	return d
}

// number reads 63, 63.5 and "63%".
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case string:
		n, err := strconv.ParseFloat(strings.TrimSuffix(v, "%"), 64)
		return n, err == nil
	}
	return 0, false
}

// table reads a dictionary, or a list of names or dictionaries.
func (s *settings) table(key string) map[string]any {
	all := map[string]any{}
	switch v := s.take(key).(type) {
	case map[string]any:
		maps.Copy(all, v)
	case []any:
		for _, item := range v {
			switch item := item.(type) {
			case string:
				all[item] = nil
			case map[string]any:
				maps.Copy(all, item)
			default:
				s.wrong(key, v, "a dictionary")
			}
		}
	default:
		s.wrong(key, v, "a dictionary")
	}
	if len(all) == 0 && len(s.mistakes) == 0 {
		s.wrong(key, "empty", "something to watch")
	}
	return all
}

func (s *settings) words(key string) []string {
	var list []string
	switch v := s.take(key).(type) {
	case string:
		list = []string{v}
	case []any:
		for _, item := range v {
			list = append(list, fmt.Sprint(item))
		}
	}
	return list
}

// done returns what was wrong, and which settings were not read.
func (s *settings) done() error {
	for _, key := range slices.Sorted(maps.Keys(s.rest)) {
		s.mistakes = append(s.mistakes, fmt.Errorf("it has no setting %q", key))
	}
	return errors.Join(s.mistakes...)
}
