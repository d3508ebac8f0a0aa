package blockfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWhatIsLostIsReportedWhateverFails: the state, or the block that goes on after what is lost, cannot be written at some
// moment of a start, or the process is killed then. The start that succeeds reports what the first one has found, once, and continues after all sequences
// that were given out.
func TestWhatIsLostIsReportedWhateverFails(t *testing.T) {
	t.Parallel()
	const high = 10
	for name, c := range map[string]struct {
		damaged  int // record
		clean    bool
		from, to uint64
	}{
		"in the middle":                           {1, false, 2, 2},
		"at the end":                              {2, false, 3, high},
		"at the end, after an orderly close":      {2, true, 3, high},
		"in the middle, after an orderly close":   {1, true, 2, 2},
		"nothing of a block, but of the stream's": {-1, true, 4, high},
	} {
		t.Run(name, func(t *testing.T) {
			for failing := 1; ; failing++ {
				dir := t.TempDir()
				msgs := filepath.Join(dir, "jetstream", "$G", "streams", "EVENTS", "msgs")
				if err := os.MkdirAll(msgs, 0o700); err != nil {
					t.Fatal(err)
				}
				s, err := newSums("EVENTS", 1)
				if err != nil {
					t.Fatal(err)
				}
				var text []byte
				for seq := uint64(1); seq <= 3; seq++ {
					text = append(text, s.blank(leastSize+20, seq, 0, time.Now())...)
				}
				if c.damaged >= 0 {
					text[c.damaged*(leastSize+20)+leastSize] ^= 0x40
				}
				if err := os.WriteFile(blockPath(msgs, 1), text, 0o600); err != nil {
					t.Fatal(err)
				}
				before := State{Clean: c.clean, Boot: boot(), High: map[string]uint64{"EVENTS": high}}
				if c.to != high {
					before.High["EVENTS"] = 3
				}
				if err := before.Write(dir); err != nil {
					t.Fatal(err)
				}
				broken := errors.New("the disk is full")
				writes := 0
				fail := func() error {
					if writes++; writes == failing {
						return broken
					}
					return nil
				}
				on := realDisk()
				on.write = func(m State, dir string) error {
					if err := fail(); err != nil {
						return err
					}
					return m.Write(dir)
				}
				on.skip = func(dir, stream string, seq uint64) error {
					if err := fail(); err != nil {
						return err
					}
					return SkipTo(dir, stream, seq)
				}
				_, r, err := recoverStore(dir, on, true)
				if failed := errors.Is(err, broken); failed != (writes == failing) || failed && r != nil || !failed && err != nil {
					t.Fatalf("write %d of %d fails: %v, %v", failing, writes, r, err)
				}
				if err == nil && failing == 1 {
					t.Fatal("nothing was written")
				}
				succeeded := err == nil
				m := State{}
				if !succeeded {
					if m, r, err = Recover(dir); err != nil {
						t.Fatal(err)
					}
				} else if m, err = ReadState(dir); err != nil {
					t.Fatal(err)
				}
				if len(r.Lost) != 1 || r.Lost[0].From != c.from || r.Lost[0].To != c.to || len(m.Lost) != 1 || len(m.Found) != 0 {
					t.Errorf("write %d fails: lost is %+v, and recorded %+v", failing, r.Lost, m)
				}
				if c.to == high {
					if last, err := ends(dir); err != nil || last.Last["EVENTS"] != high {
						t.Errorf("write %d fails: the stream continues behind %d, %v", failing, last.Last["EVENTS"], err)
					}
				}
				if _, r, err = Recover(dir); err != nil || len(r.Lost) != 0 {
					t.Errorf("write %d fails: the next start finds %+v, %v", failing, r, err)
				}
				if succeeded {
					return
				}
			}
		})
	}
}
