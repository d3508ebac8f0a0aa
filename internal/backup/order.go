package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
)

// Request asks for a restore while the master does not run. Its caller holds the lock of the
// directory.
type Request struct {
	CacheDir string
	Source   string // the directory of a backup, or of a store that no server has open
	From     string // see Target
	Member   string // the name of the member that this master is; "" is alone
	Cluster  string // its cluster_id
	Hosted   bool   // its store is in the JetStream of NATS servers that others run
	Version  string
	Entry    func(table, key string, value []byte, from, to string) (string, []byte) // see Target
	// Unconfirmed is the one of Target.
	Unconfirmed func(table string, value []byte) []byte
	Log         *slog.Logger
}

// Result is what became of a Request.
type Result struct {
	Manifest *Manifest
	Restored *Restored // nil: the next start of the member does it
	Moved    string    // where the store of the other mode is now, "" if it was not the source
}

// orderFile is the file in the directory of a master with an order.
const orderFile = "restore.json"

// order is what the next start of a member must restore.
type order struct {
	Dir  string `json:"dir"`            // of the backup
	From string `json:"from,omitempty"` // see Target
	Move string `json:"move,omitempty"` // the store that is moved away once its contents are restored
	Progress
}

func orderPath(cacheDir string) string { return filepath.Join(cacheDir, orderFile) }

// readOrder returns nil if there is none.
func readOrder(cacheDir string) (*order, error) {
	text, err := os.ReadFile(orderPath(cacheDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o := new(order)
	if err := json.Unmarshal(text, o); err != nil {
		return nil, fmt.Errorf("read %s: %w", orderPath(cacheDir), err)
	}
	return o, nil
}

func (o *order) write(cacheDir string) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return atomicfile.Write(orderPath(cacheDir), text, 0o600)
}

// workDirs are the directories for a backup that is made of a store. There are two, since one may belong to an order
// that counts until there is another one.
func workDirs(cacheDir string) [2]string {
	dir := filepath.Join(cacheDir, "restore")
	return [2]string{dir, dir + ".next"}
}

// freeWork returns the one that an order does not need; o may be nil.
func freeWork(cacheDir string, o *order) string {
	dirs := workDirs(cacheDir)
	if o.needs(dirs[0]) {
		return dirs[1]
	}
	return dirs[0]
}

// needs reports whether the backup of an order is in this directory.
func (o *order) needs(dir string) bool {
	return o != nil && strings.HasPrefix(o.Dir, dir+string(filepath.Separator))
}

// clearWork removes those that an order does not need; o may be nil.
func clearWork(cacheDir string, o *order) error {
	var errs []error
	for _, dir := range workDirs(cacheDir) {
		if !o.needs(dir) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// clearKilled removes those that a restore has left which was killed, before a start: each is as large as the
// store. What somebody else has put there stays.
func clearKilled(cacheDir string, o *order) error {
	var errs []error
	for _, dir := range workDirs(cacheDir) {
		list, err := os.ReadDir(dir)
		other := func(e fs.DirEntry) bool {
			return e.Name() != copiedDir && e.Name() != backupDir && !strings.HasPrefix(e.Name(), "."+backupDir+".")
		}
		switch {
		case o.needs(dir) || errors.Is(err, fs.ErrNotExist) || slices.ContainsFunc(list, other):
		case err != nil:
			errs = append(errs, err)
		default:
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// Carry restores what r asks for into the empty store of a single master. For a member of a
// cluster, whose other members must run for that, it leaves an order to the next start, which
// CarryOut carries out. Nothing is changed unless the whole source can be read.
func (r Request) Carry(ctx context.Context) (*Result, error) {
	store := StoreDir(r.CacheDir, r.Member != "")
	before, err := readOrder(r.CacheDir)
	if err != nil {
		return nil, err
	}
	full, err := hasData(store)
	if err != nil {
		return nil, err
	}
	if full && !r.Hosted && (before == nil || r.Member == "") {
		return nil, salt.WithHint(fmt.Errorf("the store %s is not empty", store), "nothing is restored over a store that is in use: move it away first")
	}
	work := freeWork(r.CacheDir, before)
	o, copied, err := r.order(ctx, work)
	if err != nil {
		return nil, uncopy(err, copied, work)
	}
	did, err := r.carry(ctx, store, o, before)
	if err != nil {
		return nil, uncopy(err, copied, work)
	}
	return did, nil
}

// uncopy removes the copy of a store that was made for a restore which failed: it is as large as the store.
func uncopy(err error, copied bool, work string) error {
	if !copied {
		return err
	}
	if left := os.RemoveAll(work); left != nil {
		return errors.Join(err, left)
	}
	return err
}

// carry is Carry with a source that is a backup.
func (r Request) carry(ctx context.Context, store string, o, before *order) (*Result, error) {
	m, err := Open(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := m.Verify(ctx, o.Dir); err != nil {
		return nil, err
	}
	to := Target{Member: r.Member, Cluster: r.Cluster, Members: []string{r.Member}, From: o.From, Entry: r.Entry, Unconfirmed: r.Unconfirmed, Log: r.Log}
	if _, _, err := m.plan(to); err != nil {
		return nil, err
	}
	if r.Member != "" {
		if before != nil { // what it has begun is begun again
			o.Begun = append(before.Begun, before.Done...)
		}
		if err := o.write(r.CacheDir); err != nil {
			return nil, err
		}
		return &Result{Manifest: m}, clearWork(r.CacheDir, o)
	}
	did, err := restoreAlone(ctx, m, o.Dir, store, to)
	if err != nil {
		return nil, err
	}
	moved, err := o.finish(r.CacheDir)
	return &Result{m, did, moved}, err
}

// order finds out what the source is, and makes a backup of it in work if it is a store; copied says whether it
// has begun to.
func (r Request) order(ctx context.Context, work string) (o *order, copied bool, err error) {
	dir, err := filepath.Abs(r.Source)
	if err != nil {
		return nil, false, err
	}
	if _, err := os.Lstat(filepath.Join(dir, "jetstream")); err != nil {
		return &order{Dir: dir, From: r.From}, false, nil // Open tells what is wrong
	}
	member, err := memberOf(dir, r.From)
	if err != nil {
		return nil, false, err
	}
	o = &order{From: r.From}
	if o.From == "" {
		o.From = member
	}
	if dir == StoreDir(r.CacheDir, r.Member == "") || r.Hosted && dir == StoreDir(r.CacheDir, true) {
		o.Move = dir
	}
	o.Dir, err = source{dir: dir, work: work, member: member, version: r.Version, log: r.Log}.backup(ctx)
	return o, true, err
}

// restoreAlone makes a store of a backup, which appears when it is whole.
func restoreAlone(ctx context.Context, m *Manifest, dir, store string, to Target) (did *Restored, err error) {
	tmp := store + ".restored"
	if err := os.RemoveAll(tmp); err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	b, err := startAlone(tmp, to.Log)
	if err != nil {
		return nil, fmt.Errorf("make the store %s: %w", tmp, err)
	}
	did, err = Restore(ctx, b.Conn(), m, dir, to, &Progress{}, func() error { return nil })
	b.Stop()
	if err != nil {
		return nil, err
	}
	if err := syncTree(tmp); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(store); err == nil { // it has no streams
		if _, err := away(store); err != nil {
			return nil, err
		}
	}
	return did, appear(tmp, store)
}

// away moves a directory aside.
func away(dir string) (to string, err error) {
	to = dir + time.Now().UTC().Format(".20060102T150405Z")
	return to, os.Rename(dir, to)
}

// finish removes what was only for the restore.
func (o *order) finish(cacheDir string) (moved string, err error) {
	if o.Move != "" {
		if moved, err = away(o.Move); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	for _, file := range []string{hostedPath(cacheDir), orderPath(cacheDir)} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return moved, err
		}
	}
	return moved, clearWork(cacheDir, nil)
}

// CarryOut is for the start of a member of a cluster, when the members have a leader and before
// the journal is opened: it restores what was ordered, and goes on where an earlier start was
// killed. Without an order it returns nil. nc is a connection of the daemon.
func CarryOut(ctx context.Context, nc *nats.Conn, cacheDir string, to Target) (*Restored, error) {
	if !to.Hosted {
		if err := markMember(cacheDir, to); err != nil {
			return nil, err
		}
	}
	o, err := readOrder(cacheDir)
	if err != nil {
		return nil, err
	}
	var did *Restored
	if o != nil {
		did, err = o.carryOut(ctx, nc, cacheDir, to)
	}
	if err == nil && to.Hosted {
		err = markHosted(cacheDir, to.Member)
	}
	if err != nil && o != nil {
		return nil, o.failed(cacheDir, to, err)
	}
	return did, err
}

// failed is the error of a restore that was not carried out. What was refused because of what is
// there already is withdrawn: another start would be refused, too.
func (o *order) failed(cacheDir string, to Target, err error) error {
	err = fmt.Errorf("restore %s: %w", o.Dir, err)
	again := cmp.Or(salt.Hint(err), "correct this") + "; then start the master again. 'salt-master --restore DIR' orders another backup"
	switch {
	case len(o.Begun)+len(o.Done) > 0:
		return salt.WithHint(err, again+"; what was begun is continued. 'rm "+orderPath(cacheDir)+"' withdraws the order, and what it has restored so far stays, of the first of these streams perhaps a part: "+strings.Join(o.streams(), ", "))
	case !errors.Is(err, errExists):
		return salt.WithHint(err, again+", and 'rm "+orderPath(cacheDir)+"' withdraws the order")
	}
	if gone := o.withdraw(cacheDir); gone != nil {
		return errors.Join(err, gone)
	}
	if o.Move != "" && !to.Hosted { // a start would refuse to choose between both stores
		return config.Mistake(salt.WithHint(err, fmt.Sprintf("nothing was restored, and the order is withdrawn. To use what the members have, move %s away and start the master again. If that is of a cluster that is no more, stop all members, move %s away on each, start the others again, and repeat --restore and the start here", o.Move, StoreDir(cacheDir, true))))
	}
	return config.Mistake(salt.WithHint(err, "nothing was changed, and the order to restore is withdrawn: start the master again to use what is there"))
}

// streams returns the streams that were begun, those that are not done first.
func (o *order) streams() (list []string) {
	for _, name := range o.Begun {
		if !contains(o.Done, name) {
			list = append(list, name)
		}
	}
	return append(list, o.Done...)
}

// withdraw removes the order, with the copy of the store that was made for it.
func (o *order) withdraw(cacheDir string) error {
	if err := os.Remove(orderPath(cacheDir)); err != nil {
		return err
	}
	return clearWork(cacheDir, nil)
}

func (o *order) carryOut(ctx context.Context, nc *nats.Conn, cacheDir string, to Target) (*Restored, error) {
	m, err := Open(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := m.Verify(ctx, o.Dir); err != nil {
		return nil, err
	}
	to.From = o.From
	did, err := Restore(ctx, nc, m, o.Dir, to, &o.Progress, func() error { return o.write(cacheDir) })
	if err != nil {
		return nil, err
	}
	if to.Follow != nil {
		if err := to.Follow(did); err != nil {
			return nil, err
		}
	}
	moved, err := o.finish(cacheDir)
	to.Log.Info("the store was restored", "from", o.Dir, "streams", len(did.Streams), "merged", did.Merged, "left", did.Left, "not_replaced", did.There, "moved", moved)
	return did, err
}

// markHosted writes down that the store of this master is at NATS servers that others run.
func markHosted(cacheDir, name string) error {
	return atomicfile.Write(hostedPath(cacheDir), []byte(name+"\n"), 0o600)
}

// markMember writes down whose store the store of a member is. What is written down already stays: CheckStore and CheckCluster have
// compared it.
func markMember(cacheDir string, to Target) error {
	store := StoreDir(cacheDir, true)
	if err := os.MkdirAll(store, 0o700); err != nil {
		return err
	}
	for file, text := range map[string]string{memberFile: to.Member, clusterFile: to.Cluster} {
		path := filepath.Join(store, file)
		if _, err := os.Lstat(path); err == nil || text == "" {
			continue
		}
		if err := atomicfile.Write(path, []byte(text+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}
