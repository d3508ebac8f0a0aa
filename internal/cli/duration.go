package cli

import (
	"fmt"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/salt"
)

// Duration returns the duration of an option, or its default. 10 and 0.5 are seconds; 90s,
// 1h30m and 2d have units. An option that is not given and has no default is 0. Less than low
// is a usage error.
func Duration(opts *urcli.Context, name string, low time.Duration) (time.Duration, error) {
	text := opts.String(name)
	if text == "" && !opts.IsSet(name) {
		return 0, nil
	}
	d, err := salt.ParseDuration(text, time.Second)
	if err == nil && d < low {
		err = fmt.Errorf("%q is too short: %s is the least", text, low)
	}
	if err != nil {
		return 0, Fail(Usage, salt.WithHint(fmt.Errorf("option --%s: %w", name, err), salt.Hint(err)))
	}
	return d, nil
}
