package upload

import "context"

// LoseAnswer makes the first entry be stored without an answer: meanwhile is called, and then it is stored again,
// as a table does that hears nothing. It is called before Run.
func (f *Files) LoseAnswer(meanwhile func()) {
	update, lost := f.update, false
	f.update = func(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
		if lost {
			return update(ctx, key, value, revision)
		}
		lost = true
		if _, err := update(ctx, key, value, revision); err != nil {
			return 0, err
		}
		meanwhile()
		return update(ctx, key, value, revision)
	}
}
