package rpc

import "testing"

// The ends of answers do not wait, so the connection with the most is cut when too many are
// unread, and none while they are read.
func TestUnreadEndsAreBounded(t *testing.T) {
	unread := map[string]int64{}
	s := &share{unread: func(inbox string) int64 { return unread[inbox] }, waiting: map[string]int64{}, flying: map[string]int64{}, free: make(chan struct{})}
	end := func(inbox string, read bool) string {
		deaf := s.end(inbox, MaxPart)
		if s.published(inbox, MaxPart); !read {
			unread[inbox] += MaxPart
		}
		return deaf
	}
	for range 4 * (maxSent + maxEnds) / MaxPart {
		if deaf := end("reads", true); deaf != "" {
			t.Fatalf("%s is cut, and reads", deaf)
		}
		s.looked = s.looked.Add(-lookEvery)
	}
	cut := ""
	for n := 0; n <= 2*(maxSent+maxEnds)/MaxPart && cut == ""; n++ {
		cut = end([]string{"deaf", "deaf", "half"}[n%3], false)
	}
	if cut != "deaf" {
		t.Errorf("%q is cut, want the connection with the most", cut)
	}
	if n := unread["deaf"] + unread["half"]; n > maxSent+maxEnds+MaxPart {
		t.Errorf("%d bytes are unread", n)
	}
	delete(unread, "deaf")
	delete(unread, "half")
	if s.looked = s.looked.Add(-lookEvery); !s.idle() {
		t.Error("what is gone counts further")
	}
}
