package accord

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
)

// Of returns which of several tables of what was in force belongs to a key directory: for masters that have
// one journal, and a key directory each. A key that a directory lacks was deleted there only if the table
// is about that directory. For a directory with none it is an empty one, otherwise the one that was changed
// longest ago: OpenShared clears it.
func Of(ctx context.Context, dir string, tables []Table) (Table, error) {
	var chosen Table
	var oldest int64
	for _, table := range tables {
		stored, changed, err := lastChange(ctx, table)
		if err != nil {
			return nil, err
		}
		d, err := openDirectory(filepath.Join(dir, directoryFile), stored, table)
		if err != nil {
			return nil, err
		}
		if !d.fresh {
			return table, nil
		}
		if len(stored) == 0 {
			changed = -1
		}
		if chosen == nil || changed < oldest {
			chosen, oldest = table, changed
		}
	}
	return chosen, nil
}

// lastChange returns the stamp of the directory that a table is about, nil for none, and when it was changed last.
func lastChange(ctx context.Context, table Table) (stored []byte, changed int64, err error) {
	err = table.Each(ctx, func(key string, value []byte) {
		if key == directoryKey {
			stored = bytes.Clone(value)
			return
		}
		var one agreement
		if json.Unmarshal(value, &one) == nil { // OpenShared says so of one that cannot be read
			changed = max(changed, one.At)
		}
	})
	return stored, changed, err
}
