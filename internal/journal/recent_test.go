package journal

import (
	"fmt"
	"slices"
	"testing"
)

func TestRecentIsBounded(t *testing.T) {
	var r Recent
	for i := range 3 * recentTags {
		for range 2 {
			r.add(fmt.Sprintf("some/%d", i))
			r.add(fmt.Sprintf("salt/job/%d/new", i))
			r.add(fmt.Sprintf("salt/job/%d/ret/web1", i))
		}
	}
	tags, jobs := r.Tags(), r.Jobs()
	if len(tags) != recentTags || len(jobs) != recentJobs || len(r.tags.have) != recentTags || len(r.jobs.have) != recentJobs {
		t.Errorf("%d tags (%d), %d jobs (%d)", len(tags), len(r.tags.have), len(jobs), len(r.jobs.have))
	}
	last := fmt.Sprint(3*recentTags - 1)
	if !slices.Contains(tags, "some/"+last) || !slices.Contains(jobs, last) || slices.Contains(tags, "some/0") || slices.Contains(jobs, "0") {
		t.Error("it does not hold the newest")
	}
	if slices.ContainsFunc(tags, func(s string) bool { return s == "salt/job/"+last+"/ret/web1" }) {
		t.Error("the returns of a job fill it")
	}
}
