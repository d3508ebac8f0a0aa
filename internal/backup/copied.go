package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brinebus/brine/internal/backoff"
)

// Limits of copied.
const (
	copyTime  = 30 * time.Minute      // a million messages take two minutes
	lastTime  = 30 * time.Second      // for the last copies, once those on most members are whole
	copyPause = 20 * time.Millisecond // between the first looks; it doubles, since each look costs the members something
	copyMost  = time.Second
	lostTime  = 20 * time.Second // of nothing but answers that do not have it all; copies that lack a leader answer like that for a while
)

// errLost is wrapped by the error about a restored stream that the servers have lost: one that is no
// longer the leader of its copies when it has received everything removes it.
var errLost = errors.New("the servers have lost it after its end was confirmed")

// copied waits until all copies of a restored stream, which ends with the sequence last, have all
// of it. Until then it can be lost with
// the one member that has received it, and whoever reads another copy finds less. The other
// members get it beside the log that they have in common, so the server tells too early that
// they are current: what a copy has is told by a reader of it, and members take turns in having
// the next reader.
func (r *restorer) copied(ctx context.Context, name string, last uint64) error {
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	whole := map[string]bool{} // members whose copy has everything
	var most time.Time         // when most had
	var lost time.Time         // since when no answer had everything
	for pause := copyPause; ; pause = min(2*pause, copyMost) {
		err := r.look(ctx, name, last, whole)
		switch {
		case err == nil:
			lost = time.Time{}
		case !errors.Is(err, errLost):
		case lost.IsZero():
			lost = time.Now()
		case time.Since(lost) > lostTime:
			return err
		}
		switch {
		case len(whole) >= r.to.Copies:
			return nil
		case 2*len(whole) <= r.to.Copies:
		case most.IsZero():
			most = time.Now()
		case time.Since(most) > lastTime: // a member is away, and gets its copy when it returns
			r.to.Log.Warn("not all members have their copy yet", "stream", name, "copies", len(whole), "wanted", r.to.Copies)
			return nil
		}
		if !backoff.Sleep(ctx, pause) {
			return errors.Join(fmt.Errorf("%d of %d copies are complete after %s", len(whole), r.to.Copies, copyTime), err)
		}
	}
}

// look looks at one copy, and notes in whole whose it is if it has everything.
func (r *restorer) look(ctx context.Context, name string, last uint64, whole map[string]bool) error {
	var stream struct {
		State state `json:"state"`
	}
	err := ask(ctx, r.nc, "STREAM.INFO."+name, struct{}{}, &stream)
	switch {
	case errors.Is(err, errNoStream):
		return fmt.Errorf("%w: %w", errLost, err)
	case err != nil:
		return err
	case stream.State.Last < last:
		return fmt.Errorf("%w: it ends with %d, not %d", errLost, stream.State.Last, last)
	}
	var reader struct {
		Name    string `json:"name"`
		Pending uint64 `json:"num_pending"`
		Cluster struct {
			Leader string `json:"leader"`
		} `json:"cluster"`
	}
	question := map[string]any{"stream_name": name, "config": map[string]any{
		"deliver_policy": "all", "ack_policy": "none", "replay_policy": "instant", "mem_storage": true, "num_replicas": 1, "inactive_threshold": 5 * time.Second,
	}}
	if err := ask(ctx, r.nc, "CONSUMER.CREATE."+name, question, &reader); err != nil {
		return err
	}
	if reader.Pending >= stream.State.Messages && reader.Cluster.Leader != "" {
		whole[reader.Cluster.Leader] = true
	}
	return ask(ctx, r.nc, "CONSUMER.DELETE."+name+"."+reader.Name, struct{}{}, nil)
}
