package jobview

import (
	"bytes"
	"context"
	"fmt"

	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Gather runs a job of which nothing is to be shown as it comes, and returns where it stands on
// each minion when nothing more is expected.
func Gather(ctx context.Context, conn *rpc.Conn, q protocol.Publish) (map[salt.MinionID]job.Report, error) {
	stream, err := conn.Call(protocol.OpPublish, q)
	if err != nil {
		return nil, client.Error(err)
	}
	if _, err := begun(ctx, stream); err != nil {
		return nil, err
	}
	all := map[salt.MinionID]job.Report{}
	err = lines(ctx, stream, func(line []byte) error {
		u, err := job.ReadUpdate(line)
		if err != nil {
			return fmt.Errorf("unreadable update of the master: %w", err)
		}
		if u.ID != "" && (u.State.Returned() || u.State.Final()) {
			all[u.ID] = u.Report
		}
		return nil
	})
	return all, client.Error(err)
}

// lines hands on what the master says, line by line.
func lines(ctx context.Context, stream *rpc.Stream, do func(line []byte) error) error {
	for {
		b, err := stream.Next(ctx)
		if isEnd(err) {
			return nil
		}
		if err != nil {
			return err
		}
		for line := range bytes.SplitSeq(b, []byte("\n")) {
			if err := do(line); err != nil {
				return err
			}
		}
	}
}
