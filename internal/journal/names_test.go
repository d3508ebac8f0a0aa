package journal

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The names of one sender take a bounded amount of memory, however many it sends, and the names
// of other senders are not forgotten.
func TestFloodOfNamesIsBounded(t *testing.T) { // not parallel: it looks at the heap
	n, now, begin := newNames(), time.Now(), heap()
	n.put("web1/first", 3, 7, now)
	const flood = 1_000_000
	for i := range flood {
		n.put("web2/"+strconv.Itoa(i), 1, uint64(i), now)
	}
	if grown := heap() - begin; grown > 3<<20 {
		t.Errorf("%d names of a sender take %d bytes", flood, grown)
	}
	for name, want := range map[string]int{"web1/first": 3, "web2/999999": 1, "web2/991808": 1, "web2/983000": 0, "web2/1": 0, "web1/other": 0, "web3/first": 0} {
		if got := n.find(name).n; got != want {
			t.Errorf("of %s %d events are known, want %d", name, got, want)
		}
	}
}

// A name is remembered for the promised time, and a sender that has become inactive uses no
// memory.
func TestNamesAreForgotten(t *testing.T) {
	t.Parallel()
	n, begin := newNames(), time.Now()
	n.put("web1/old", 1, 1, begin)
	n.put("web2/old", 1, 2, begin)
	n.put("web1/new", 1, 3, begin.Add(nameWindow+time.Second))
	for _, name := range []string{"web1/old", "web1/new", "web2/old"} {
		if n.find(name).n != 1 {
			t.Errorf("%s is forgotten too early", name)
		}
	}
	n.put("web1/newer", 1, 4, begin.Add(2*nameWindow+2*time.Second))
	n.put("web1/newest", 1, 5, begin.Add(3*nameWindow+3*time.Second))
	if n.find("web1/old").n != 0 || n.senders["web2"] != nil {
		t.Error("what is old is remembered")
	}
}

// The names of a lost batch do not count as stored.
func TestNamesOfALostBatchAreForgotten(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ have, want reach }{
		"before":  {reach{90, 5}, reach{90, 5}},
		"behind":  {reach{301, 5}, reach{301, 5}},
		"a part":  {reach{103, 10}, reach{99, 6}},
		"all":     {reach{120, 10}, reach{99, 0}},
		"its end": {reach{100, 10}, reach{99, 9}},
	} {
		if got := row.have.without([]Gap{{100, 300}, {500, 500}}); got != row.want {
			t.Errorf("%s: of %v is left %v, want %v", name, row.have, got, row.want)
		}
	}
}

// If the journal could not be read to its end after a failed write, the next attempt begins
// where that one began; otherwise duplicates would be stored.
func TestReadingResumesAfterAFailedWrite(t *testing.T) {
	n := newNames()
	n.begin("web1/a", flight{from: 7})
	n.begin("web1/b", flight{from: 9})
	for range 2 {
		if from, any := n.forget(); !any || from != 7 {
			t.Errorf("it is read behind %d, %v", from, any)
		}
	}
	n.begin("web1/c", flight{from: 20})
	n.found()
	if from, any := n.forget(); !any || from != 20 {
		t.Errorf("what came later is read behind %d, %v", from, any)
	}
	n.found()
	if _, any := n.forget(); any {
		t.Error("nothing was under way, and it is read")
	}
}

// ages has the age of each message.
type ages map[uint64]time.Duration

func (a ages) GetMsg(_ context.Context, seq uint64, _ ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	age, there := a[seq]
	if !there {
		return nil, jetstream.ErrMsgNotFound
	}
	return &jetstream.RawStreamMsg{Time: time.Now().Add(-age)}, nil
}

// TestAStartReadsNoOldNames: names are remembered for a time, so older messages are not read, however many there are
// and although a start has just stored one behind them.
func TestAStartReadsNoOldNames(t *testing.T) {
	const most = 10
	for name, c := range map[string]struct {
		from, last uint64
		age        time.Duration // of the oldest message that may be read
		want       uint64        // 0 for the time
	}{
		"few, and no file":       {0, most, time.Hour, 0},
		"few behind the file":    {5, most, time.Hour, 6},
		"many old, and no file":  {0, 100, time.Hour, 0},
		"many old behind a file": {5, 100, time.Hour, 0},
		"many new ones":          {0, 100, time.Second, 91},
		"one was removed":        {0, 101, 0, 92},
	} {
		t.Run(name, func(t *testing.T) {
			q, any, err := toLearn(t.Context(), ages{90: c.age}, sound{}, c.from, most, jetstream.StreamState{Msgs: c.last, FirstSeq: 1, LastSeq: c.last, LastTime: time.Now()})
			if err != nil || !any || q.FromSeq != c.want || q.Since.IsZero() != (c.want > 0) {
				t.Errorf("it reads %+v, %v, %v", q, any, err)
			}
		})
	}
}

// mute is a stream whose leader does not answer the first questions, for it was killed.
type mute struct {
	messages
	left int
}

func (m *mute) GetMsg(ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	if m.left--; m.left >= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return m.messages.GetMsg(ctx, seq, opts...)
}

// TestAStartAsksForNamesAgain: a question that nobody answers does not use up the time in which a start has to learn the
// names.
func TestAStartAsksForNamesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(Starting(t.Context()), learnTime)
		defer cancel()
		begun := time.Now()
		q, any, err := toLearn(ctx, &mute{ages{90: 0}, 2}, sound{}, 0, 10, jetstream.StreamState{Msgs: 100, FirstSeq: 1, LastSeq: 100, LastTime: begun})
		if took := time.Since(begun); err != nil || !any || q.FromSeq != 91 || took > learnTime/10 {
			t.Errorf("after %s it reads %+v, %v, %v", took, q, any, err)
		}
	})
}

// TestAClockThatWasSetHidesNoNames: while a daemon is away its clock is set, by hours. What was stored before is recognised after its
// start all the same: what the file has, and what it lacks.
func TestAClockThatWasSetHidesNoNames(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		before := time.Now().Add(by)
		q, any, err := toLearn(t.Context(), ages{}, sound{}, 50, 1000, jetstream.StreamState{Msgs: 60, FirstSeq: 1, LastSeq: 60, LastTime: before})
		if err != nil || !any || q.FromSeq != 51 {
			t.Errorf("set by %s: it reads %+v, %v, %v", by, q, any, err)
		}
		n, now := newNames(), time.Now()
		n.recall(now, before, named{"web1", keyOf("web1/a"), reach{7, 2}})
		if got := n.find("web1/a"); got.n != 2 || got.end != 7 {
			t.Errorf("set by %s: it is known as %+v", by, got)
		}
		n.sweep(now.Add(3 * nameWindow))
		if got := n.find("web1/a"); got.n != 0 {
			t.Errorf("set by %s: it is known for ever", by)
		}
	}
}
