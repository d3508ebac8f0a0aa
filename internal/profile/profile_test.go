package profile

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// TestKinds: each profile is what 'go tool pprof' reads, compressed by gzip, and has samples
// of this program in it.
func TestKinds(t *testing.T) {
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
		if err != nil || kind != "cpu" && !bytes.Contains(text, []byte("runtime.")) { // in so short a time nothing need be seen
			t.Errorf("%s: %v: %d bytes without a function", kind, err, len(text))
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

// TestNobodyWaits: who goes away leaves the processor to the next one, and two at a time are
// told so.
func TestNobodyWaits(t *testing.T) {
	var b bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := processor(ctx, &b, protocol.Profile{Seconds: MaxSeconds}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	done := make(chan error)
	began := make(chan struct{})
	go func() {
		close(began)
		done <- processor(ctx, new(bytes.Buffer), protocol.Profile{Seconds: MaxSeconds})
	}()
	<-began
	for ended := false; !ended; {
		err := processor(t.Context(), new(bytes.Buffer), protocol.Profile{})
		ended = rpc.CodeOf(err) == rpc.Busy
		if !ended && err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
