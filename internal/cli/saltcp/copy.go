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

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/jobview"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/target"
)

// chunkSize is how many bytes of a file one job carries.
const chunkSize = 1 << 20

// copying is the state of the command.
type copying struct {
	conn     *brine.Conn
	target   brine.Target
	options  brine.RunOptions
	compress bool
	results  map[string]*result
	now      atomic.Pointer[string] // the current file
}

// result is the result on one minion.
type result struct {
	files  map[string]any // by destination: true, or the error
	failed bool
	lost   string // why nothing more is sent to it
	at     string // the file at which that happened
}

func newCopying(conn *brine.Conn, t brine.Target, o brine.RunOptions, compress bool) *copying {
	c := &copying{conn: conn, target: t, options: o, compress: compress, results: map[string]*result{}}
	c.now.Store(new(string))
	return c
}

func (c *copying) waitingFor() string { return "the minions to take " + *c.now.Load() }

// all copies one file after the other, until no minion is left that accepts any.
func (c *copying) all(ctx context.Context, items []item) error {
	for i, it := range items {
		c.now.Store(&it.source)
		if err := c.one(ctx, it, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// one copies a file. The first chunk of the first file decides which minions match: a minion that
// connects later did not get the earlier chunks.
func (c *copying) one(ctx context.Context, it item, first bool) error {
	if it.dir {
		return c.send(ctx, it, brine.Command{Function: "cp.recv_chunked", Args: []any{it.dest, nil}}, first, true)
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

// wanted reports whether a minion accepts more of the file.
func (c *copying) wanted(it item) bool {
	for _, r := range c.results {
		if _, known := r.files[it.dest]; !known && r.lost == "" {
			return true
		}
	}
	return false
}

// command returns the job for one chunk.
func (c *copying) command(it item, chunk []byte, upload string, offset int64, sum hash.Hash, last bool) (brine.Command, error) {
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
			return brine.Command{}, err
		}
		chunk = b.Bytes()
	}
	kw["chunk"] = base64.StdEncoding.EncodeToString(chunk)
	return brine.Command{Function: "cp.recv_chunked", Args: []any{it.dest}, Kwargs: kw}, nil
}

// send runs one job and records each minion's answer. A minion that has failed repeats the error
// for each further chunk of that file: its first answer counts.
func (c *copying) send(ctx context.Context, it item, cmd brine.Command, first, last bool) error {
	t := c.without(c.lost())
	reports, err := jobview.Gather(ctx, func(ctx context.Context) (*brine.Job, error) { return c.conn.Run(ctx, t, cmd, c.options) })
	if cli.Code(err) == cli.NoMatch && !first {
		return nil // none is left
	}
	if err != nil {
		return err
	}
	for id, r := range reports {
		if r.Status == brine.NotTargeted {
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
		return cli.Fail(cli.NoMatch, errors.New("No minions matched the target: it matches none of them by their current grains."))
	}
	return nil
}

// lost returns the minions to which nothing more is sent.
func (c *copying) lost() (ids []string) {
	for id, r := range c.results {
		if r.lost != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// letters are the first letters of words in a compound target.
var letters = map[target.Kind]string{
	target.Glob: "", target.PCRE: "E@", target.List: "L@", target.Grain: "G@", target.GrainPCRE: "P@", target.Nodegroup: "N@", target.Pillar: "I@", target.PillarPCRE: "J@", target.IPCIDR: "S@",
}

// without returns the target without some ids, so that the command does not wait for these minions
// again. It matches a subset of the user's target, so the same rules permit it.
func (c *copying) without(ids []string) brine.Target {
	t, kind := c.target, target.Kind(c.target.Type)
	if len(ids) == 0 || t.Delimiter != ":" || kind != target.Compound && strings.ContainsAny(t.Expr, " ()") {
		return t
	}
	expr := letters[kind] + t.Expr
	if kind == target.Compound {
		expr = "( " + t.Expr + " )"
	}
	t.Expr, t.Type = expr+" and not L@"+strings.Join(ids, ","), string(target.Compound)
	return t
}

// note records a minion's answer to a chunk.
func (r *result) note(it item, report brine.Return, last bool) {
	_, known := r.files[it.dest]
	switch {
	case known:
	case report.Status == brine.Done && last:
		place, ok := report.Value.(string)
		if !ok {
			place = it.dest
		}
		r.files[place] = true
	case report.Status == brine.Done:
	case report.Returned():
		r.failed, r.files[it.dest] = true, fmt.Sprint(report.Value)
	default:
		r.lost, r.at = jobview.Missed(job.State(report.Status), report.Text), it.dest
	}
}
