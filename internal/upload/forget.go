package upload

import (
	"context"
	"log/slog"
	"time"
)

const (
	// keepRemoved is how long the entry of a file stays that was removed. A member that was away for a
	// shorter time learns of the removal from it.
	keepRemoved = 30 * 24 * time.Hour
	// awayTime is how long a member may be away so that its note counts. The difference is for clocks that
	// are not right, and for what was removed just before.
	awayTime = keepRemoved - 24*time.Hour
	// maxForgotten is how many entries are forgotten at a time: other work must not wait long.
	maxForgotten = 100
)

// now is the time for notes and entries. The difference of two counts also the time for which the machine was
// suspended.
func now() time.Time { return time.Now().UTC().Round(0) }

// forgetOld removes the entries of files that were removed long ago. All members do so. It is no longer known
// then that there was such a file: so a member that was away for as long does not follow, but compares
// everything.
func (f *Files) forgetOld(ctx context.Context) {
	if !f.note.follows || f.Journal.Err() != nil {
		return
	}
	if now().Sub(f.note.Time) > awayTime {
		f.throttle.Log(f.Log, slog.LevelError, "away", 1, "this master was cut off for so long that it may not know of all files of minions that were removed: it compares all at its next start", "since", f.note.Time)
		return
	}
	f.note.Time = now()
	for _, one := range f.index.forgettable(now().Add(-keepRemoved), maxForgotten) {
		if err := f.files.RemoveAt(ctx, one.key(), one.revision); err != nil {
			if ctx.Err() == nil {
				f.throttle.Log(f.Log, slog.LevelWarn, "forget", 1, "what is stored about files of minions that were removed long ago is still there: it is removed later", "err", err)
			}
			return
		}
		f.index.forget(one)
	}
}
