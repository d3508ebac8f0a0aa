package executor

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// ended is the context of a job that was ended for a reason; nil is one that was not.
func ended(t *testing.T, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	if cause != nil {
		cancel(cause)
	}
	return ctx
}

func TestStatesOfReturns(t *testing.T) {
	good, bad := function.Result{Return: true, Success: true, Out: "txt"}, function.Result{Return: "ERROR", Retcode: 3}
	for _, test := range []struct {
		name  string
		cause error
		res   function.Result
		state job.State
		text  string
	}{
		{"good", nil, good, job.Done, ""},
		{"bad", nil, bad, job.Failed, ""},
		{"killed", &killed{syscall.SIGTERM, "root"}, bad, job.Killed, "killed by signal 15 (terminated) from root"},
		{"killed, and returned all the same", &killed{syscall.SIGKILL, ""}, good, job.Killed, "killed by signal 9 (killed)"},
		{"the daemon ends", ErrStopping, bad, job.Killed, ErrStopping.Error()},
		{"another end", errors.New("other"), bad, job.Failed, ""},
	} {
		got := report(ended(t, test.cause), test.res)
		want := job.Report{State: test.state, Text: test.text, Return: value.Value{V: test.res.Return}, Retcode: value.Value{V: test.res.Retcode}, Success: value.Value{V: test.res.Success}, Out: test.res.Out}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", test.name, got, want)
		}
	}
}

// TestSeveralFunctions: all run, in their order, also behind one that failed, and one that
// failed is enough for the job to have failed.
func TestSeveralFunctions(t *testing.T) {
	var order []salt.Function
	got := compound(t.Context(), []job.Command{{Function: "a.good"}, {Function: "b.bad"}, {Function: "c.good"}}, func(c job.Command) function.Result {
		order = append(order, c.Function)
		if c.Function == "b.bad" {
			return function.Result{Return: "ERROR", Retcode: 2}
		}
		return function.Result{Return: string(c.Function), Success: true}
	})
	if !slices.Equal(order, []salt.Function{"a.good", "b.bad", "c.good"}) {
		t.Errorf("run were %v", order)
	}
	want := job.Report{
		State:   job.Failed,
		Return:  value.Value{V: map[string]any{"a.good": "a.good", "b.bad": "ERROR", "c.good": "c.good"}},
		Retcode: value.Value{V: map[string]any{"a.good": 0, "b.bad": 2, "c.good": 0}},
		Success: value.Value{V: map[string]any{"a.good": true, "b.bad": false, "c.good": true}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// TestLongArgumentsAreNotSentBack: the functions of a job are with its return in any case.
func TestLongArgumentsAreNotSentBack(t *testing.T) {
	short := []job.Command{{Function: "test.arg", Args: []any{"x"}}}
	if got := asSent(short, job.Report{}).Commands; !reflect.DeepEqual(got, short) {
		t.Errorf("short ones: %+v", got)
	}
	long := []job.Command{{Function: "test.arg", Args: []any{strings.Repeat("x", maxSentArguments)}}, {Function: "test.ping", Kwargs: map[string]any{"a": 1}}}
	if got := asSent(long, job.Report{}).Commands; !reflect.DeepEqual(got, []job.Command{{Function: "test.arg"}, {Function: "test.ping"}}) {
		t.Errorf("long ones: %+v", got)
	}
	if long[0].Args == nil {
		t.Error("the job itself has lost them")
	}
}

// written feeds a follower nobody sends for, and returns what it would send, message by
// message.
func written(t *testing.T, feed func(*follower)) (parts [][]job.Output, end bool) {
	t.Helper()
	f := newFollower()
	feed(f)
	for {
		r, more := f.take()
		if len(r.Output) > 0 {
			parts = append(parts, r.Output)
		}
		if len(r.Output) == 0 && !r.OutputEnd || !more {
			return parts, r.OutputEnd
		}
	}
}

func text(toStderr bool, s string) job.Output {
	return job.Output{Error: toStderr, Text: value.Value{V: s}}
}

// TestFollowedOutput: lines stay whole and in order, neighbours of one stream are one text,
// and what has no end yet waits for it.
func TestFollowedOutput(t *testing.T) {
	got, _ := written(t, func(f *follower) {
		f.Wrote(false, []byte("one\ntw"))
		f.Wrote(true, []byte("oops\n"))
		f.Wrote(false, []byte("o\nthree\nrest"))
	})
	want := [][]job.Output{{text(false, "one\n"), text(true, "oops\n"), text(false, "two\nthree\n")}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	long := strings.Repeat("x", followLine)
	got, _ = written(t, func(f *follower) { f.Wrote(false, []byte(long)) })
	if !reflect.DeepEqual(got, [][]job.Output{{text(false, long)}}) {
		t.Errorf("a line without an end, of %d bytes, is not shown", len(long))
	}
}

// TestFollowedOutputIsCut: a message has about 64 KiB, and a command that has ended fills no
// memory.
func TestFollowedOutputIsCut(t *testing.T) {
	line := strings.Repeat("x", 1023) + "\n"
	got, _ := written(t, func(f *follower) { f.Wrote(false, []byte(strings.Repeat(line, 100))) })
	if len(got) != 2 || len(got[0][0].Text.V.(string)) != followPart {
		t.Errorf("100 KiB are %d messages", len(got))
	}
	f := newFollower()
	f.Began()
	f.Ended()
	f.Wrote(false, []byte(strings.Repeat(line, followMost/len(line)+10)))
	if !f.lost || f.size > followMost+len(line) {
		t.Errorf("%d bytes are kept of a command that has ended", f.size)
	}
}

// TestEachCommandWaitsForSpace, also after another one of the job, and until the last of those that run has ended.
func TestEachCommandWaitsForSpace(t *testing.T) {
	line := strings.Repeat("x", 1023) + "\n"
	synctest.Test(t, func(t *testing.T) {
		f := newFollower()
		f.Began()
		f.Ended()
		f.Began()
		f.Began()
		f.Ended()
		done := make(chan struct{})
		go func() {
			f.Wrote(false, []byte(strings.Repeat(line, 2*followBytes/len(line))))
			close(done)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Errorf("it does not wait with %d bytes", f.size)
		default:
		}
		for f.size > 0 {
			f.take()
			synctest.Wait()
		}
		<-done
		go func() {
			f.Wrote(false, []byte(strings.Repeat(line, 2*followBytes/len(line))))
			f.Ended()
		}()
		synctest.Wait()
		f.Ended()
		synctest.Wait()
		if f.size != 2*followBytes {
			t.Errorf("after the end %d bytes are kept, of %d", f.size, 2*followBytes)
		}
	})
}
