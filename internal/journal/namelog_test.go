package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// However a file of names is truncated or damaged, the names before the damage are read, and no
// others.
func TestNameLogOverDamage(t *testing.T) {
	t.Parallel()
	created := time.Unix(17, 0)
	l := &nameLog{path: filepath.Join(t.TempDir(), "names"), created: created}
	if err := l.begin(3, []shelved{{time.Now(), []named{{"web1", key{1}, reach{3, 1}}}}}); err != nil {
		t.Fatal(err)
	}
	ends := map[int64]int{l.size: 1} // size of the file: names that it has then
	for i := range 3 {
		if err := l.add(uint64(4+i), []named{{"web1", key{2, byte(i)}, reach{uint64(4 + i), 2}}, {"", key{3, byte(i)}, reach{9, 1}}}); err != nil {
			t.Fatal(err)
		}
		ends[l.size] = 3 + 2*i
	}
	l.close()
	whole, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	count := func(b []byte) (n int, upto uint64) {
		if err := os.WriteFile(l.path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		upto, err := l.load(func(_ time.Time, one named) {
			n++
			if n == 1 && fmt.Sprint(one) != fmt.Sprint(named{"web1", key{1}, reach{3, 1}}) {
				t.Errorf("%v is not what was written", one)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return n, upto
	}
	want, upto := 0, uint64(0)
	for size := range len(whole) + 1 {
		if n, ok := ends[int64(size)]; ok {
			want, upto = n, uint64(3+n/2)
		}
		if n, to := count(whole[:size]); n != want && size > 80 || to != upto {
			t.Errorf("cut off at %d of %d: %d names up to %d, want %d up to %d", size, len(whole), n, to, want, upto)
		}
		if size < len(whole) {
			flipped := append([]byte(nil), whole...)
			flipped[size] ^= 1
			if n, to := count(flipped); to > upto || n > want && size > 80 {
				t.Errorf("byte %d is another one: %d names up to %d, want %d up to %d", size, n, to, want, upto)
			}
		}
	}
	other := &nameLog{path: l.path, created: created.Add(1)}
	count(whole)
	if upto, err := other.load(func(time.Time, named) { t.Error("a name of another journal is known") }); upto != 0 || err != nil {
		t.Errorf("a file of another journal accounts for %d, %v", upto, err)
	}
}
