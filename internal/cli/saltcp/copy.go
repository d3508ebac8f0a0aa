package saltcp

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/jobview"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// chunkSize is how many bytes of a file go into one job.
const chunkSize = 1 << 20

// copying is what is under way.
type copying struct {
	conn     *rpc.Conn
	q        protocol.Publish
	compress bool
	results  map[salt.MinionID]*result
	now      atomic.Pointer[string] // what is being copied
}

// result is what became of the files on one minion.
type result struct {
	files  map[string]any // by their place: true, or what went wrong
	failed bool
	lost   string // why nothing more is sent to it
	at     string // the file at which that was
}

func newCopying(conn *rpc.Conn, q protocol.Publish, compress bool) *copying {
	c := &copying{conn: conn, q: q, compress: compress, results: map[salt.MinionID]*result{}}
	c.now.Store(new(string))
	return c
}

func (c *copying) waitingFor() string { return "the minions to take " + *c.now.Load() }

// all copies one file after the other, until no minion is left that takes any.
func (c *copying) all(ctx context.Context, items []item) error {
	for i, it := range items {
		c.now.Store(&it.source)
		if err := c.one(ctx, it, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// one copies a file. The first chunk of the first one says which minions are meant: who comes
// later did not get what was before.
func (c *copying) one(ctx context.Context, it item, first bool) error {
	if it.dir {
		return c.send(ctx, it, job.Command{Function: "cp.recv_chunked", Args: []any{it.dest, nil}}, first, true)
	}
	f, err := os.Open(it.source)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	sum, upload, chunk := sha256.New(), strings.ToLower(rand.Text()), make([]byte, chunkSize)
	for offset := int64(0); ; {
		n, err := io.ReadFull(r, chunk)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		_, err = r.Peek(1)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		last := err != nil
		sum.Write(chunk[:n])
		cmd, err := c.command(it, chunk[:n], upload, offset, sum, last)
		if err != nil {
			return err
		}
		if err := c.send(ctx, it, cmd, first && offset == 0, last); err != nil || last || !c.wanted(it) {
			return err
		}
		offset += int64(n)
	}
}

// wanted says whether there is a minion that takes more of the file.
func (c *copying) wanted(it item) bool {
	for _, r := range c.results {
		if _, known := r.files[it.dest]; !known && r.lost == "" {
			return true
		}
	}
	return false
}

// command is the job of one chunk.
func (c *copying) command(it item, chunk []byte, upload string, offset int64, sum hash.Hash, last bool) (job.Command, error) {
	kw := map[string]any{"upload": upload, "offset": offset, "compressed": c.compress, "makedirs": it.keep}
	if it.keep {
		kw["mode"] = int64(it.mode)
	}
	if it.name != "" {
		kw["name"] = it.name
	}
	if last {
		kw["sha256"] = hex.EncodeToString(sum.Sum(nil))
	}
	if c.compress {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write(chunk)
		if err := errors.Join(err, z.Close()); err != nil {
			return job.Command{}, err
		}
		chunk = b.Bytes()
	}
	kw["chunk"] = base64.StdEncoding.EncodeToString(chunk)
	return job.Command{Function: "cp.recv_chunked", Args: []any{it.dest}, Kwargs: kw}, nil
}

// send runs one job and notes what each minion says. A minion that has failed once says so to
// each further chunk of that file: what it says first counts.
func (c *copying) send(ctx context.Context, it item, cmd job.Command, first, last bool) error {
	q := c.without(c.lost())
	q.Commands = []job.Command{cmd}
	reports, err := jobview.Gather(ctx, c.conn, q)
	if cli.Code(err) == cli.NoMatch && !first {
		return nil // none is left
	}
	if err != nil {
		return err
	}
	for id, r := range reports {
		if r.State == job.NotTargeted {
			continue
		}
		if first {
			c.results[id] = &result{files: map[string]any{}}
		}
		if one := c.results[id]; one != nil && one.lost == "" {
			one.note(it, r, last)
		}
	}
	if len(c.results) == 0 {
		return cli.Fail(cli.NoMatch, errors.New("No minions matched the target: by their live facts it means none of them."))
	}
	return nil
}

// lost are the minions to which nothing more is sent.
func (c *copying) lost() (ids []string) {
	for id, r := range c.results {
		if r.lost != "" {
			ids = append(ids, string(id))
		}
	}
	slices.Sort(ids)
	return ids
}

// letters begin a word of a compound target.
var letters = map[target.Kind]string{
	target.Glob: "", target.PCRE: "E@", target.List: "L@", target.Grain: "G@", target.GrainPCRE: "P@", target.Nodegroup: "N@", target.Pillar: "I@", target.PillarPCRE: "J@", target.IPCIDR: "S@",
}

// without is the job for those that the target means, but for some: nobody waits for them again and
// again. It says what the user has said and less, so that the same rules permit it.
func (c *copying) without(ids []string) protocol.Publish {
	q, kind := c.q, target.Kind(c.q.TargetType)
	if len(ids) == 0 || q.Delimiter != ":" || kind != target.Compound && strings.ContainsAny(q.Target, " ()") {
		return q
	}
	expr := letters[kind] + q.Target
	if kind == target.Compound {
		expr = "( " + q.Target + " )"
	}
	q.Target, q.TargetType = expr+" and not L@"+strings.Join(ids, ","), string(target.Compound)
	return q
}

// note takes what a minion has said of a chunk.
func (r *result) note(it item, report job.Report, last bool) {
	_, known := r.files[it.dest]
	switch {
	case known:
	case report.State == job.Done && last:
		place, ok := report.Return.V.(string)
		if !ok {
			place = it.dest
		}
		r.files[place] = true
	case report.State == job.Done:
	case report.State.Returned():
		r.failed, r.files[it.dest] = true, fmt.Sprint(report.Return.V)
	default:
		r.lost, r.at = jobview.Missed(report), it.dest
	}
}
