package peer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// What the master says with a code, functions tell apart by errors; its words stay.
func TestCodesHaveAMeaning(t *testing.T) {
	for code, want := range map[rpc.Code]error{
		rpc.Denied: function.ErrRefused, rpc.NoMatch: function.ErrNoMatch, rpc.Unavailable: function.ErrUnavailable,
	} {
		err := rpc.Errorf(code, "the words of the master")
		got := meaning(fmt.Errorf("publish: %w", err))
		if !errors.Is(got, want) || rpc.CodeOf(got) != code || got.Error() != "publish: "+err.Error() {
			t.Errorf("%s: %v, want one that is %v too, in the same words", code, got, want)
		}
	}
	plain := errors.New("broken")
	if got := meaning(plain); got != plain {
		t.Errorf("an error without a code became %v", got)
	}
}

// A minion that has not returned is told by its state and the reason, if there is one.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		u        job.Update
		returned bool
		failed   bool
		text     string
	}{
		"done":            {job.Update{ID: "a", Report: job.Report{State: job.Done}}, true, false, ""},
		"failed":          {job.Update{ID: "a", Report: job.Report{State: job.Failed}}, true, true, ""},
		"silent":          {job.Update{ID: "a", Report: job.Report{State: job.Silent}}, false, true, string(job.Silent)},
		"with its reason": {job.Update{ID: "a", Report: job.Report{State: job.NotConnected, Text: "since noon"}}, false, true, string(job.NotConnected) + ", since noon"},
	} {
		if a := answer(c.u); a.ID != "a" || a.Returned != c.returned || a.Failed != c.failed || a.Text != c.text {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestWithoutAMaster(t *testing.T) {
	nobody := Client{Conn: func(string) *rpc.Conn { return nil }}
	if _, err := nobody.Publish(t.Context(), function.Publication{Target: "*"}); !errors.Is(err, function.ErrUnavailable) {
		t.Errorf("Publish: %v, want ErrUnavailable", err)
	}
	if _, err := nobody.Runner(t.Context(), function.RunnerCall{Command: salt.Command{Function: "manage.up"}, Timeout: time.Second}); !errors.Is(err, function.ErrUnavailable) {
		t.Errorf("Runner: %v, want ErrUnavailable", err)
	}
}

// A job that another minion has published publishes nothing: two would keep each other busy.
func TestPublishedJobsPublishNothing(t *testing.T) {
	p := Published{By: "web1"}
	_, published := p.Publish(context.Background(), function.Publication{})
	_, ran := p.Runner(context.Background(), function.RunnerCall{})
	if !errors.Is(published, function.ErrRefused) || !errors.Is(ran, function.ErrRefused) {
		t.Errorf("Publish: %v, Runner: %v; want ErrRefused", published, ran)
	}
}
