package rpc

import "testing"

// However small the messages are, those under way must fit into the queue of the
// receiver, which drops what does not.
func TestWindowBoundsTheNumberOfMessages(t *testing.T) {
	for _, size := range []int{0, 1, 100, minCost, MaxPart} {
		o := &answerer{acked: make(chan struct{}, 1), limit: stallTimeout}
		count := 0
		for range 3 * QueueLen {
			if o.reserve(size) {
				count++
			}
		}
		if closing := 2; count+closing > QueueLen {
			t.Errorf("%d messages of %d bytes are sent ahead, and the queue holds %d", count, size, QueueLen)
		}
		if int64(count*size) > Window+MaxPart {
			t.Errorf("%d messages of %d bytes are sent ahead, beyond the window of %d bytes", count, size, Window)
		}
	}
}
