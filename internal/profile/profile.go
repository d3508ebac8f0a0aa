// Package profile hands profiles of this process to operators who ask for them through the
// local socket. It opens no address of its own, unlike net/http/pprof.
package profile

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// MaxSeconds bounds how long the processor is watched for one request: it costs the daemon
// a few per cent meanwhile, and nobody else gets a profile of this kind.
const MaxSeconds = 60

// kinds are the profiles that there are, with what takes them.
var kinds = map[string]func(ctx context.Context, w *bytes.Buffer, q protocol.Profile) error{
	"allocs":    lookup("allocs"),
	"cpu":       processor,
	"goroutine": lookup("goroutine"),
	"heap":      lookup("heap"),
}

// Kinds are the names of the profiles, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// Handle answers a protocol.Profile with a protocol.ProfileData. Who may ask is decided
// before it is called.
func Handle(ctx context.Context, r *rpc.Request) error {
	var q protocol.Profile
	if err := r.Decode(&q); err != nil {
		return err
	}
	data, err := take(ctx, q)
	if err != nil {
		return err
	}
	return r.Send(ctx, protocol.ProfileData{Data: data})
}

func take(ctx context.Context, q protocol.Profile) ([]byte, error) {
	of := kinds[q.Kind]
	switch {
	case of == nil:
		return nil, rpc.Errorf(rpc.Usage, "there is no profile %q: there are %s", q.Kind, strings.Join(Kinds(), ", "))
	case q.Seconds < 0 || q.Seconds > MaxSeconds:
		return nil, rpc.Errorf(rpc.Usage, "a profile takes at most %d seconds", MaxSeconds)
	}
	var b bytes.Buffer
	if err := of(ctx, &b, q); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// lookup takes what the runtime has counted so far.
func lookup(name string) func(context.Context, *bytes.Buffer, protocol.Profile) error {
	return func(_ context.Context, w *bytes.Buffer, _ protocol.Profile) error {
		return pprof.Lookup(name).WriteTo(w, 0)
	}
}

// processor watches the processor until the time is over or nobody waits for it any more.
func processor(ctx context.Context, w *bytes.Buffer, q protocol.Profile) error {
	if err := pprof.StartCPUProfile(w); err != nil {
		return rpc.Errorf(rpc.Busy, "another profile of the processor is being taken: %w", err)
	}
	defer pprof.StopCPUProfile()
	over := time.NewTimer(time.Duration(q.Seconds * float64(time.Second)))
	defer over.Stop()
	select {
	case <-over.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the profile was not taken to its end: %w", context.Cause(ctx))
	}
}
