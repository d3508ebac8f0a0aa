package membership

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhatIsStoredOfAFormerMemberIsForgottenLater: what could not be forgotten at once is tried again, without end, but not
// once one of the same name is a member again.
func TestWhatIsStoredOfAFormerMemberIsForgottenLater(t *testing.T) {
	for name, c := range map[string]struct {
		key    string
		linked []string // its key at each attempt, "" for not linked
		fails  int64
		kept   bool // it is tried again
		want   bool // what is stored is gone
	}{
		"at the first attempt":         {"k1", []string{""}, 0, false, true},
		"at the second one":            {"k1", []string{"", ""}, 1, false, true},
		"not yet":                      {"k1", []string{"", "", ""}, 3, true, false},
		"it is linked for a moment":    {"k1", []string{"k1", ""}, 0, false, true},
		"it is linked still":           {"k1", []string{"k1"}, 0, true, false},
		"another one has its name":     {"k1", []string{"k2", ""}, 0, false, false},
		"it has left":                  {"", []string{"", ""}, 1, false, true},
		"it has left, and joins again": {"", []string{"k1", ""}, 0, false, false},
		"it joins between attempts":    {"", []string{"", "k1", ""}, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var f former
			var own keeping
			own.fails.Store(c.fails)
			f.add("m1", c.key)
			for _, key := range c.linked {
				f.retry(t.Context(), map[string]string{"m1": key}, own.Forget, slog.New(slog.DiscardHandler))
			}
			if kept := len(f.all()) > 0; kept != c.kept || (own.name.Load() != nil) != c.want {
				t.Errorf("it is tried again: %t, gone: %t", kept, own.name.Load() != nil)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // and that by itself
		var f former
		var own keeping
		own.fails.Store(3)
		f.add("m1", "k1")
		go f.watch(t.Context(), func() map[string]string { return nil }, own.Forget, slog.New(slog.DiscardHandler))
		time.Sleep(5 * formerEvery)
		synctest.Wait()
		if len(f.all()) > 0 || own.name.Load() == nil {
			t.Error("it is not tried again")
		}
	})
}

// TestARemovalDuringARetryCounts: one that is removed while what is stored of an earlier one of that name is forgotten
// is not overlooked.
func TestARemovalDuringARetryCounts(t *testing.T) {
	var f former
	f.add("m1", "k1")
	f.retry(t.Context(), nil, func(context.Context, string) error { f.add("m1", "k2"); return nil }, slog.New(slog.DiscardHandler))
	if key := f.all()["m1"]; key != "k2" {
		t.Errorf("the key of what is to be forgotten is %q", key)
	}
}
