package sink

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/brinebus/brine/test/deadline"
)

// carbon is a server for Graphite's plain text.
type carbon struct {
	net.Listener
	mu    sync.Mutex
	lines []string
	drop  int // connections that are cut before anything is read
}

// newCarbon starts a server that cuts the first drop connections.
func newCarbon(t testing.TB, drop int) *carbon {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &carbon{Listener: l, drop: drop}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.serve(conn.(*net.TCPConn))
		}
	})
	t.Cleanup(func() {
		l.Close()
		deadline.Call(t, serving.Wait, "serving")
	})
	return c
}

func (c *carbon) serve(conn *net.TCPConn) {
	defer conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drop > 0 {
		c.drop--
		_ = conn.SetLinger(0) // a reset; a plain close is as good for the test
		return
	}
	for s := bufio.NewScanner(conn); s.Scan(); {
		c.lines = append(c.lines, s.Text())
	}
}

func graphiteRule(c *carbon, metrics string) string {
	_, port, _ := net.SplitHostPort(c.Addr().String())
	return fmt.Sprintf("r: {batch: 5, wait: 0s, to: {graphite: {host: 127.0.0.1, port: %s, metrics: %q}}}", port, metrics)
}

func TestGraphite(t *testing.T) {
	const at = " 1795262400"
	tests := []struct {
		name, metrics, data string
		want                []string
	}{
		{"one number", `{"salt.\(.from|part).load": .data.load}`, `{"load":0.5}`, []string{"salt.web1.load 0.5" + at}},
		{"several", `.data`, `{"b":2,"a":true,"_stamp":null}`, nil}, // the stamp is not a number
		{"a large number", `{n: .data.n}`, `{"n":12345678901234567890}`, []string{"n 12345678901234567890" + at}},
		{"null is none", `{n: .data.n}`, `{}`, nil},
		{"no result", `empty`, `{}`, nil},
		{"two results", `{a: 1}, {b: 2}`, `{}`, []string{"a 1" + at, "b 2" + at}},
		{"a text", `{n: "x"}`, `{}`, nil},
		{"an expression that fails", `.tag.x`, `{}`, nil},
		{"a name with a line end", `{"\(.data.x)": 1}`, `{"x":"a 1 1\nevil 5"}`, nil},
		{"the same as a part", `{"\(.data.x|part)": 1}`, `{"x":"a 1 1\nevil.5"}`, []string{"a_1_1_evil_5 1" + at}},
		{"without end", `def f: f; f`, `{}`, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newCarbon(t, 0)
			write(t, openOne(t, graphiteRule(c, test.metrics)), []Event{makeEvent(t, "a", test.data, 1)})
			c.mu.Lock()
			defer c.mu.Unlock()
			if fmt.Sprint(c.lines) != fmt.Sprint(test.want) {
				t.Errorf("got %q, want %q", c.lines, test.want)
			}
		})
	}
}

func TestGraphiteAwayAndBack(t *testing.T) {
	c := newCarbon(t, 3)
	j := newJournal()
	j.fire(t, 40)
	start(t, j, configure(t, graphiteRule(c, `{"n.\(.data.n)": 1}`)))
	j.waitFor(t, "r", 40)
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[string]bool{}
	for _, line := range c.lines {
		seen[line] = true
	}
	if len(seen) != 40 {
		t.Errorf("%d different metrics came, want 40", len(seen))
	}
}

func TestInfluxLines(t *testing.T) {
	const at = " 1795262400123456007\n"
	tests := []struct{ name, points, want string }{
		{"all", `{measurement: "m", tags: {host: .from}, fields: {a: 1, b: 2.5, c: true, d: "x"}}`, `m,host=web1 a=1,b=2.5,c=true,d="x"` + at},
		{"no tags", `{measurement: "m", fields: {a: 1}}`, "m a=1" + at},
		{"escapes", `{measurement: "m, n", tags: {"k =,": "v =,"}, fields: {"f =,": "q\"\\"}}`, `m\,\ n,k\ \=\,=v\ \=\, f\ \=\,="q\"\\"` + at},
		{"a line end in a tag", `{measurement: "m", tags: {t: "a\nb"}, fields: {f: "a\nb"}}`, `m,t=a\ b f="a\nb"` + at},
		{"a backslash at the end", `{measurement: "m", tags: {t: "a\\"}, fields: {f: 1}}`, `m,t=a f=1` + at},
		{"nothing to say", `{measurement: "m", fields: {f: null}}`, ""},
		{"empty tags", `{measurement: "m", tags: {a: "", b: null}, fields: {f: 1}}`, "m f=1" + at},
		{"two points", `{measurement: "m", fields: {f: 1}}, {measurement: "n", fields: {f: 2}}`, "m f=1" + at + "n f=2" + at},
		{"no measurement", `{fields: {f: 1}}`, ""},
		{"no object", `5`, ""},
		{"a list as field", `{measurement: "m", fields: {f: []}}`, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			q, err := newQuery(test.points)
			if err != nil {
				t.Fatal(err)
			}
			e := makeEvent(t, "a", `{}`, 3007)
			got := collect(testLog(t), []Event{e}, nil, func(out []byte, e Event) ([]byte, error) {
				err := q.each(e.Line, func(v any) (err error) {
					out, err = appendPoint(out, v, e)
					return err
				})
				return out, err
			})
			if string(got) != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// FuzzInfluxPoint: whatever stands in an event, a point is one line.
func FuzzInfluxPoint(f *testing.F) {
	f.Add("m", "tag", "value", "field", "text")
	f.Add(" ,", "\\", "\n", "=", "\"\r\n")
	f.Fuzz(func(t *testing.T, measurement, tag, value, field, text string) {
		v := map[string]any{"measurement": measurement, "tags": map[string]any{tag: value}, "fields": map[string]any{field: text}}
		got, err := appendPoint(nil, v, makeEvent(t, "a", `{}`, 1))
		if err != nil && len(got) > 0 {
			t.Errorf("an error with the line %q", got)
		}
		line, ended := strings.CutSuffix(string(got), "\n")
		if len(got) > 0 && (!ended || strings.Contains(line, "\n")) {
			t.Errorf("%q is not one line", got)
		}
	})
}

// FuzzPart: a part has none of what separates parts, names and numbers.
func FuzzPart(f *testing.F) {
	f.Add("web1.example.com")
	f.Add("a\nb c")
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := part(text, nil).(string)
		if !ok || strings.ContainsFunc(got, func(r rune) bool { return r == '.' || unicode.IsSpace(r) || unicode.IsControl(r) }) {
			t.Errorf("part(%q) = %q", text, got)
		}
	})
}

func TestInfluxPosts(t *testing.T) {
	h := newHook()
	var bodies []string
	h.answer = func(n int, body string) int {
		bodies = append(bodies, body)
		if n == 1 {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	}
	h.Server = httptest.NewServer(h)
	defer h.Close()
	token := t.TempDir() + "/token"
	writeSecret(t, token, "geheim")
	j := newJournal()
	j.fire(t, 3)
	start(t, j, configure(t, fmt.Sprintf(
		`r: {to: {influxdb: {url: %q, token_file: %s, points: '{measurement: "m", fields: {n: .data.n}}'}}}`, h.URL+"/api/v2/write?bucket=b", token)))
	j.waitFor(t, "r", 3)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(bodies) != 2 || bodies[0] != bodies[1] || strings.Count(bodies[0], "\n") != 3 {
		t.Errorf("posted %q, want the same three points twice", bodies)
	}
	if got := h.header.Get("Authorization"); got != "Token geheim" {
		t.Errorf("Authorization: %q", got)
	}
}
