package dispatch

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// A plan is one value in a table, as JSON. One for many minions, which would be too long, is compressed, and
// has the tokens of the keys, which are random, without the ids, and as bytes. The holder, which is read much
// more often than the rest, is then in the header of the compressed data.

const (
	// maxPlan is the largest plan, in bytes, for the table.
	maxPlan = 900 << 10
	// sparePlan is how much more it may have when its holder changes: a plan that was stored stays one
	// that can be stored.
	sparePlan = 4 << 10
	// maxUnpacked is the largest plan that is compressed.
	maxUnpacked = 8 << 20
	// tokenSize is the size of a token of a key: a SHA-256.
	tokenSize = 32
)

// encode returns the plan as it is stored. A job that does not continue after a restart, and has a plan that
// is too large, is stored without what is needed to send it again.
func (p *plan) encode(batch *job.Batch) ([]byte, error) {
	b, err := p.pack()
	if err == nil && len(b) > maxPlan && !p.lasts(batch) {
		less := *p
		less.Keys, less.Envelope.Commands, less.Envelope.ReturnKwargs = nil, nil, value.Value{}
		for _, c := range p.Envelope.Commands {
			less.Envelope.Commands = append(less.Envelope.Commands, job.Command{Function: c.Function})
		}
		b, err = less.pack()
	}
	limit := maxPlan
	if p.revision > 0 {
		limit += sparePlan
	}
	if err == nil && len(b) > limit {
		return nil, p.tooLarge(batch)
	}
	return b, err
}

// UnconfirmedEntry returns what an entry of a table becomes that may be that of a plan whose job has ended, since it comes from a store in
// which removed entries may be there again: the plan no longer says that the job was begun. So the job is carried on only if the
// journals have something of it, and they then say which minions have had their turn. Entries of other tables stay as they are, and
// unreadable ones, which are carried on by nobody.
func UnconfirmedEntry(table string, value []byte) []byte {
	if table != plansTable && !strings.HasPrefix(table, plansTable+"_") {
		return value
	}
	p, err := readPlan(value)
	if err != nil || !p.Started {
		return value
	}
	p.Started = false
	if b, err := p.pack(); err == nil {
		return b
	}
	return value
}

// tooLarge is the error for a plan that cannot be stored.
func (p *plan) tooLarge(batch *job.Batch) error {
	what, without := "the job", ""
	switch {
	case batch != nil:
		what, without = "the batch", ", or run it without a batch"
	case !p.Until.IsZero():
		what, without = "the queued job", ", or run it without a queue"
	}
	return rpc.Errorf(rpc.Usage, "%s cannot be stored: its %d minions, with their keys, and its arguments take more than %d KiB", what, len(p.Start.Minions), maxPlan>>10).
		WithHint("run it on fewer minions at a time, with shorter arguments%s", without)
}

// pack returns the plan as JSON, compressed if that is too long. It may be too long nevertheless.
func (p *plan) pack() ([]byte, error) {
	b, err := json.Marshal(p)
	if err != nil || len(b) <= maxPlan || len(b) > maxUnpacked {
		return b, err
	}
	short := *p
	short.Tokens, short.Keys = tokens(p.Start.Minions, p.Keys)
	if b, err = json.Marshal(&short); err != nil {
		return nil, err
	}
	var w bytes.Buffer
	z := gzip.NewWriter(&w)
	if z.Extra, err = json.Marshal(p.Holder); err == nil {
		_, err = z.Write(b)
	}
	if err == nil {
		err = z.Close()
	}
	return w.Bytes(), err
}

// tokens returns the tokens of minions as bytes, in their order; zeros are none. The rest is what has
// another form.
func tokens(ids []salt.MinionID, keys map[salt.MinionID]string) (list []byte, rest map[salt.MinionID]string) {
	rest = map[salt.MinionID]string{}
	for id, token := range keys {
		rest[id] = token
	}
	for _, id := range ids {
		b, err := hex.DecodeString(rest[id])
		if err != nil || len(b) != tokenSize || hex.EncodeToString(b) != rest[id] {
			b = make([]byte, tokenSize)
		} else {
			delete(rest, id)
		}
		list = append(list, b...)
	}
	return list, rest
}

// readPlan reads a stored plan.
func readPlan(b []byte) (p plan, err error) {
	if isPacked(b) {
		if b, err = unpack(b); err != nil {
			return p, err
		}
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return p, err
	}
	if p.Tokens == nil {
		return p, nil
	}
	if len(p.Tokens) != tokenSize*len(p.Start.Minions) {
		return p, fmt.Errorf("a plan for %d minions has %d bytes of tokens", len(p.Start.Minions), len(p.Tokens))
	}
	if p.Keys == nil {
		p.Keys = map[salt.MinionID]string{}
	}
	none := make([]byte, tokenSize)
	for i, id := range p.Start.Minions {
		if token := p.Tokens[tokenSize*i:][:tokenSize]; !bytes.Equal(token, none) {
			p.Keys[id] = hex.EncodeToString(token)
		}
	}
	p.Tokens = nil
	return p, nil
}

// isPacked reports whether a stored plan is compressed.
func isPacked(b []byte) bool { return bytes.HasPrefix(b, []byte{0x1f, 0x8b}) }

func unpack(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	b, err = io.ReadAll(io.LimitReader(z, maxUnpacked+1))
	if err == nil && len(b) > maxUnpacked {
		err = fmt.Errorf("a plan has more than %d MiB", maxUnpacked>>20)
	}
	return b, err
}

// holderOf returns the holder of a stored plan.
func holderOf(b []byte) (lease.Holder, error) {
	var p struct{ Holder lease.Holder }
	if !isPacked(b) {
		err := json.Unmarshal(b, &p)
		return p.Holder, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err == nil {
		err = json.Unmarshal(z.Extra, &p.Holder)
	}
	return p.Holder, err
}
