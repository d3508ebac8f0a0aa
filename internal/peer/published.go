package peer

import (
	"context"
	"fmt"

	"github.com/brinebus/brine/internal/function"
)

// PublishedBy is the environment variable by which a program learns that it runs for
// a job that another minion has published, and which. It keeps scripts from going in
// circles; root can take it away, and what its minion may publish is for the master
// to say.
const PublishedBy = "SALT_PUBLISHED_BY"

// Published implements function.Publisher for a job that another minion has published:
// by a refusal.
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
