package upload

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/journal"
)

// openAlone is for a single master. If its store was one of several masters before, the directory gets what
// it lacks of the files there. Then the tables are removed, since nothing keeps them up to date any more.
func (f *Files) openAlone(ctx context.Context) (err error) {
	if f.files, err = journal.FindTable(ctx, f.Journal, filesTable); err != nil {
		return err
	}
	if err := forgetNote(f.Dir); err != nil || f.files == nil {
		return err
	}
	if f.pieces, err = journal.FindTable(ctx, f.Journal, piecesTable); err != nil {
		return err
	}
	f.Log.Info("the files of minions that the members of the cluster had are put into the directory of this master", "dir", f.Dir)
	if err := f.placeStored(ctx); err != nil {
		return err
	}
	for _, table := range []string{underwayTable, piecesTable, filesTable} { // the one that is looked for last
		err = errors.Join(err, journal.DropTable(ctx, f.Journal, table))
	}
	return err
}

// placeStored places what is stored. What cannot be placed is in the log: it keeps no master from
// starting.
func (f *Files) placeStored(ctx context.Context) error {
	keys, err := f.files.Keys(ctx)
	if err != nil || f.pieces == nil {
		return err
	}
	for _, key := range keys {
		e, err := f.files.Entry(ctx, key)
		if err != nil {
			return err
		}
		stored, err := parseEntry(key, e.Value)
		if err == nil && !stored.Never {
			err = f.place(ctx, &file{entry: stored, revision: e.Revision})
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			f.Log.Error("a file that a minion has uploaded to the cluster is not in the directory of this master", "minion", stored.Minion, "path", stored.Path, "err", err)
		}
	}
	return nil
}
