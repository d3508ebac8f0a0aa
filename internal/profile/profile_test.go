package profile

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"runtime/pprof"
	"testing"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// TestKinds: each profile is what 'go tool pprof' reads, compressed by gzip, with what it
// counts. That of goroutines has this one in it; of memory and the processor, which are
// sampled, a short program need have nothing.
func TestKinds(t *testing.T) {
	counts := map[string]string{"allocs": "alloc_space", "cpu": "nanoseconds", "goroutine": "TestKinds", "heap": "inuse_space"}
	for _, kind := range Kinds() {
		data, err := take(t.Context(), protocol.Profile{Kind: kind, Seconds: 0.01})
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		text, err := io.ReadAll(z)
		if err != nil || counts[kind] == "" || !bytes.Contains(text, []byte(counts[kind])) {
			t.Errorf("%s: %v: %d bytes without %q", kind, err, len(text), counts[kind])
		}
	}
}

func TestNoProfile(t *testing.T) {
	for _, q := range []protocol.Profile{{}, {Kind: "cmdline"}, {Kind: "cpu", Seconds: MaxSeconds + 1}, {Kind: "cpu", Seconds: -1}} {
		if data, err := take(t.Context(), q); rpc.CodeOf(err) != rpc.Usage || data != nil {
			t.Errorf("%+v: %d bytes, %v", q, len(data), err)
		}
	}
}

// A profile that is asked for while another one is taken is refused with the reason, and one that
// is cancelled makes the next one possible.
func TestASecondProfileIsRefusedAtOnce(t *testing.T) {
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	err := processor(t.Context(), new(bytes.Buffer), protocol.Profile{Seconds: MaxSeconds})
	pprof.StopCPUProfile()
	if rpc.CodeOf(err) != rpc.Busy {
		t.Errorf("beside another one: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := processor(gone, new(bytes.Buffer), protocol.Profile{Seconds: MaxSeconds}); !errors.Is(err, context.Canceled) {
			t.Errorf("for who has gone: %v", err)
		}
	}
}
