package netlab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// started is a relay, and what is beyond its ends.
func started(forth, back delays) (r *relay, a, b net.Conn) {
	a, first := net.Pipe()
	b, second := net.Pipe()
	r = newRelay([2]io.ReadWriteCloser{first, second})
	r.start(forth, back)
	return r, a, b
}

func by(d Delay) delays {
	return func([]byte) (time.Duration, bool) { return d.draw(), true }
}

// send writes numbered frames, with a pause after each.
func send(t *testing.T, to io.Writer, count int, pause time.Duration) {
	for n := range count {
		if _, err := to.Write(binary.BigEndian.AppendUint32(nil, uint32(n))); err != nil {
			t.Error(err)
		}
		<-time.After(pause)
	}
}

// receive reads numbered frames, in order, until none comes any more, and says when each came.
func receive(t *testing.T, from net.Conn) (came []time.Time) {
	buffer := make([]byte, frameMost)
	for {
		_ = from.SetReadDeadline(time.Now().Add(time.Minute)) // a pipe takes it
		n, err := from.Read(buffer)
		if err != nil {
			return came
		}
		if n != 4 || binary.BigEndian.Uint32(buffer) != uint32(len(came)) {
			t.Errorf("frame %d came as %x", len(came), buffer[:n])
		}
		came = append(came, time.Now())
	}
}

func TestARelayDelaysAndKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forth, back := Delay{Base: 100 * time.Millisecond, Jitter: 60 * time.Millisecond}, Delay{Base: 5 * time.Millisecond}
		r, a, b := started(by(forth), by(back))
		const count, pause = 300, time.Millisecond
		start := time.Now()
		go send(t, a, count, pause)
		go send(t, b, count, pause)
		returned := make(chan []time.Time)
		go func() { returned <- receive(t, a) }()
		for what, got := range map[string]struct {
			came  []time.Time
			delay Delay
		}{"forth": {receive(t, b), forth}, "back": {<-returned, back}} {
			if len(got.came) != count {
				t.Errorf("%s: %d of %d frames came", what, len(got.came), count)
			}
			different := map[time.Duration]bool{}
			for n, at := range got.came {
				took := at.Sub(start.Add(time.Duration(n) * pause))
				different[took] = true
				if took < got.delay.Base-got.delay.Jitter || took > got.delay.Base+got.delay.Jitter {
					t.Errorf("%s: frame %d took %v", what, n, took)
				}
			}
			if (len(different) > 1) != (got.delay.Jitter > 0) {
				t.Errorf("%s: %d different delays", what, len(different))
			}
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestARelayDropsWhatIsTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, b := started(by(Delay{Base: time.Second}), by(Delay{}))
		send(t, a, 2*waitingMost, time.Microsecond)
		// One more was out of the queue.
		if came := receive(t, b); len(came) != waitingMost+1 {
			t.Errorf("%d frames came, want %d", len(came), waitingMost+1)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsNotSlowPassesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := []byte("slow")
		r, a, b := started(func(frame []byte) (time.Duration, bool) { return time.Second, bytes.Equal(frame, slow) }, by(Delay{}))
		start := time.Now()
		go func() {
			_, first := a.Write(slow)
			_, second := a.Write([]byte("fast"))
			if err := errors.Join(first, second); err != nil {
				t.Error(err)
			}
		}()
		buffer := make([]byte, frameMost)
		for _, want := range []struct {
			frame string
			after time.Duration
		}{{"fast", 0}, {"slow", time.Second}} {
			n, err := b.Read(buffer)
			if err != nil || string(buffer[:n]) != want.frame || time.Since(start) != want.after {
				t.Errorf("%q came after %v, %v; want %q after %v", buffer[:n], time.Since(start), err, want.frame, want.after)
			}
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestARelaySaysWhyItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a, _ := started(by(Delay{}), by(Delay{}))
		_ = a.Close() // as a device that is deleted
		synctest.Wait()
		if err := r.close(); !errors.Is(err, io.EOF) {
			t.Errorf("an end was lost, and the relay says %v", err)
		}
	})
}

func TestWhomAFrameConcerns(t *testing.T) {
	t.Parallel()
	four := append(append(bytes.Repeat([]byte{0}, 12), 0x08, 0, 0x45), bytes.Repeat([]byte{0}, 11)...)
	four = append(four, 10, 0, 0, 1, 10, 0, 0, 2)
	six := append(append(bytes.Repeat([]byte{0}, 12), 0x86, 0xdd, 0x60), bytes.Repeat([]byte{0}, 7)...)
	six = append(append(six, netip.MustParseAddr("fd77::1").AsSlice()...), netip.MustParseAddr("fd77::2").AsSlice()...)
	arp := append(append(bytes.Repeat([]byte{0}, 12), 0x08, 0x06), four[14:]...)
	for _, c := range []struct {
		name  string
		frame []byte
		peer  string
		want  bool
	}{
		{"from it", four, "10.0.0.1", true},
		{"for it", four, "10.0.0.2", true},
		{"of others", four, "10.0.0.3", false},
		{"IPv6 from it", six, "fd77::1", true},
		{"IPv6 for it", six, "fd77::2", true},
		{"IPv6 of others", six, "fd77::3", false},
		{"not of IP", arp, "10.0.0.1", false},
		{"cut off", four[:33], "10.0.0.1", false},
		{"without a header", four[:13], "10.0.0.1", false},
		{"empty", nil, "10.0.0.1", false},
	} {
		if got := concerns(c.frame, netip.MustParseAddr(c.peer)); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
