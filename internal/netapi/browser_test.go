package netapi_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// browser is a Chromium without a window, controlled by its own protocol.
type browser struct {
	t       testing.TB
	ctx     context.Context
	conn    *websocket.Conn
	session string

	mu       sync.Mutex
	next     int
	waiting  map[int]chan json.RawMessage
	problems []string // exceptions and errors of the page
}

// browse starts the browser; without one the test is skipped.
func browse(t testing.TB) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("skipped: there is no chromium")
	}
	dir := t.TempDir()
	c := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run", "--window-size=1400,900", "--remote-debugging-port=0", "--user-data-dir="+dir, "about:blank")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := c.Start(); err != nil {
		t.Skip("skipped: chromium does not start: " + err.Error())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	b := &browser{t: t, ctx: ctx, waiting: map[int]chan json.RawMessage{}}
	t.Cleanup(func() {
		cancel()
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // the group of its processes
		_ = c.Wait()
	})
	var url string
	for url == "" {
		text, err := os.ReadFile(filepath.Join(dir, "DevToolsActivePort"))
		if lines := strings.Split(string(text), "\n"); err == nil && len(lines) == 2 {
			url = "ws://127.0.0.1:" + lines[0] + lines[1]
			break
		}
		select {
		case <-ctx.Done():
			t.Fatal("chromium does not say where it listens")
		case <-time.After(50 * time.Millisecond):
		}
	}
	if b.conn, _, err = websocket.Dial(ctx, url, nil); err != nil {
		t.Fatal(err)
	}
	b.conn.SetReadLimit(64 << 20)
	go b.read()
	var target struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) read() {
	for {
		_, text, err := b.conn.Read(b.ctx)
		if err != nil {
			return
		}
		var m struct {
			ID            int
			Method        string
			Result, Error json.RawMessage
			Params        struct {
				ExceptionDetails struct {
					Text      string
					Exception struct{ Description string }
				}
				Entry struct{ Source, Level, Text, URL string }
			}
		}
		if json.Unmarshal(text, &m) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.ID > 0:
			b.waiting[m.ID] <- append(m.Result, m.Error...)
		case m.Method == "Runtime.exceptionThrown":
			b.problems = append(b.problems, m.Params.ExceptionDetails.Text+" "+m.Params.ExceptionDetails.Exception.Description)
		case m.Method == "Log.entryAdded" && m.Params.Entry.Level == "error" && m.Params.Entry.Source != "network":
			b.problems = append(b.problems, m.Params.Entry.Text+" "+m.Params.Entry.URL)
		}
		b.mu.Unlock()
	}
}

// call sends a request to the browser.
func (b *browser) call(method string, params map[string]any, out any) {
	b.t.Helper()
	b.mu.Lock()
	b.next++
	id, answer := b.next, make(chan json.RawMessage, 1)
	b.waiting[id] = answer
	b.mu.Unlock()
	m := map[string]any{"id": id, "method": method, "params": params}
	if params == nil {
		m["params"] = map[string]any{}
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.conn.Write(b.ctx, websocket.MessageText, text); err != nil {
		b.t.Fatal(err)
	}
	select {
	case text := <-answer:
		if out != nil {
			if err := json.Unmarshal(text, out); err != nil {
				b.t.Fatalf("%s: %v: %s", method, err, text)
			}
		}
	case <-b.ctx.Done():
		b.t.Fatalf("%s: the browser does not answer", method)
	}
}

// eval returns the value of an expression in the page.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if out.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, out.ExceptionDetails.Exception.Description)
	}
	return out.Result.Value
}

// wait waits until an expression is true.
func (b *browser) wait(what, expression string) {
	b.t.Helper()
	late := time.After(40 * time.Second)
	for b.eval("(() => { try { return !!("+expression+") } catch { return false } })()") != true {
		select {
		case <-late:
			b.shoot("failed")
			b.t.Fatalf("the page does not show %s: %s\n%.3000v\nproblems: %q", what, expression, b.eval("location.href+'\\n'+document.body.innerText"), b.problems)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// shoot saves a picture of the page if BRINE_SCREENSHOTS names a directory.
func (b *browser) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("BRINE_SCREENSHOTS")
	if dir == "" {
		return
	}
	var out struct{ Data string }
	b.call("Page.captureScreenshot", nil, &out)
	picture, err := base64.StdEncoding.DecodeString(out.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644)
	}
	if err != nil {
		b.t.Error(err)
	}
}
