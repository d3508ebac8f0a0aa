package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// LedTableName returns the name of the table that LedTable opens for a member, "" for a single
// master. It has no dash, so that the table is restored under the same name everywhere.
func LedTableName(name, member string) string {
	if member == "" {
		return name
	}
	return name + "_" + member
}

// LedTable opens a table that this member leads, as it does its own journal: to write it, nobody
// waits for another member's end to be noticed. Unlike one of OwnTable, it may be written by all
// members, and remains when its member is left behind by a move of the store.
func LedTable(ctx context.Context, j *Journal, name string) (*Table, error) {
	t, err := j.Table(ctx, LedTableName(name, j.member))
	if err == nil && j.copies > 0 {
		j.led.add(t.all)
	}
	return t, err
}

// FindTable opens the table of this name, nil if there is none.
func FindTable(ctx context.Context, j *Journal, name string) (*Table, error) {
	t := &Table{name: name, store: j.writer.store, conn: j.js.Conn()}
	err := insist(ctx, t.store, "open the table "+name, func(ctx context.Context) (err error) {
		if t.all, err = j.js.Stream(ctx, tablePrefix+name); err == nil {
			t.kv, err = openBucket(ctx, j.js, name, j.copies)
		}
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the table %s: %w", name, err)
	}
	return t, nil
}

// LedTables returns the names of the tables of LedTable with this name, of all members. The value
// is whether their member has a journal here: one that is left of a move has none.
func LedTables(ctx context.Context, j *Journal, name string) (all map[string]bool, err error) {
	err = insist(ctx, j.writer.store, "list the tables "+name, func(ctx context.Context) error {
		all = map[string]bool{}
		journals := map[string]bool{}
		names := j.js.StreamNames(ctx)
		for s := range names.Name() {
			if table, ok := strings.CutPrefix(s, tablePrefix); ok && (table == name || strings.HasPrefix(table, name+"_")) {
				all[table] = false
			}
			journals[s] = strings.HasPrefix(s, memberPrefix)
		}
		for table := range all {
			_, member, _ := strings.Cut(table, "_")
			all[table] = journals[memberPrefix+member]
		}
		return names.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("list the tables %s: %w", name, err)
	}
	return all, nil
}

// Copies returns how many copies of everything there are, 0 for a single master.
func Copies(j *Journal) int { return j.copies }

// DropTable removes the table of this name, if there is one.
func DropTable(ctx context.Context, j *Journal, name string) error {
	err := insist(ctx, j.writer.store, "remove the table "+name, func(ctx context.Context) error { return j.js.DeleteStream(ctx, tablePrefix+name) })
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("remove the table %s: %w", name, err)
	}
	return nil
}
