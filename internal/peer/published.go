package peer

import (
	"context"
	"fmt"

	"github.com/brinebus/brine/internal/function"
)

// PublishedBy is the environment variable that tells a program that it runs for a job published
// by another minion, and by which one. It keeps scripts from calling each other forever. Root
// can remove it; the master decides what its minion may publish anyway.
const PublishedBy = "SALT_PUBLISHED_BY"

// Published implements function.Publisher for a job that another minion has published: it
// refuses.
type Published struct{ By string }

func (p Published) refuse() error {
	return fmt.Errorf("%w: the minion %s has published this job, and such a job cannot publish", function.ErrRefused, p.By)
}

// Publish implements function.Publisher.
func (p Published) Publish(context.Context, function.Publication) ([]function.Answer, error) {
	return nil, p.refuse()
}

// Runner implements function.Publisher.
func (p Published) Runner(context.Context, function.RunnerCall) (function.RunnerAnswer, error) {
	return function.RunnerAnswer{}, p.refuse()
}
