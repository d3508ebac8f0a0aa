package jobview

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
)

// TestWhoWaitedCanGoOn: whether the daemon is killed or stops in good order, the hint has the id of the job.
func TestWhoWaitedCanGoOn(t *testing.T) {
	const jid = "20261128120000000000"
	s := &Show{runner: "salt-run", start: job.Start{JID: jid}}
	follow := "'salt-run jobs.follow " + jid + "' shows it, in a cluster at another member"
	own := salt.WithHint(fmt.Errorf("%w: it leaves", brine.ErrUnavailable), "jobs.follow "+jid+" follows it there")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"killed":  {fmt.Errorf("%w: end of file", brine.ErrLost), "its log says why it ended; a job that was started goes on: " + follow},
		"stopped": {salt.WithHint(fmt.Errorf("%w: the daemon is stopping", brine.ErrUnavailable), "see jobs.list_jobs"), "a job that was started goes on: " + follow},
		"left":    {own, salt.Hint(own)},
		"another": {errors.New("no space"), ""},
	} {
		if got := s.left(c.err); salt.Hint(got) != c.want || !errors.Is(got, c.err) || !strings.Contains(got.Error(), c.err.Error()) {
			t.Errorf("%s: %v, hint %q, want %q", name, got, salt.Hint(got), c.want)
		}
	}
}

// TestWhoWaitsForAnElectionLearnsThat: in the line that says what the start waits for, and while the job runs at once.
func TestWhoWaitsForAnElectionLearnsThat(t *testing.T) {
	var told bytes.Buffer
	s := &Show{env: &cli.Env{Name: "salt", Stderr: &told, StderrTTY: true}}
	s.Waits("a leader")
	if got := s.waitingFor(); got != "a leader" || told.Len() > 0 {
		t.Errorf("the start waits for %q, and %q is printed", got, told.String())
	}
	s.start.JID = "20261128120000000000"
	if s.Waits("a leader"); told.String() != "salt: waiting for a leader\n" {
		t.Errorf("while it runs %q is printed", told.String())
	}
}
