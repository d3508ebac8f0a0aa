package netapi_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// guiRules are what SaltGUI needs in addition to @runner and @wheel: functions that read
// settings or pillar are granted by name.
const guiRules = ", {'@wheel': [config.values]}, pillar.items, pillar.obfuscate"

// TestSaltGUI controls an unchanged SaltGUI in a browser: from login to logout, over each of
// its pages. BRINE_SALTGUI names the directory of its index.html.
func TestSaltGUI(t *testing.T) {
	from := os.Getenv("BRINE_SALTGUI")
	if from == "" {
		t.Skip("skipped: BRINE_SALTGUI names no directory with SaltGUI; scripts/gui gets it")
	}
	b := browse(t)
	s := startWith(t, guiRules)
	if out, err := exec.Command("cp", "-r", from, filepath.Join(s.root, "gui")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.write("gui/static/salt-auth.txt", "file\n")
	a := s.api("A", open+"  app: "+s.root+"/gui/index.html\n  static: "+s.root+"/gui/static\n")
	text := func(word string) string { return fmt.Sprintf("document.body.innerText.includes(%q)", word) }
	page := func(hash string, words ...string) {
		t.Helper()
		b.eval("location.hash = " + fmt.Sprintf("%q", "#"+hash))
		for _, w := range words {
			b.wait(w+" on "+hash, text(w))
		}
		b.shoot(regexp.MustCompile(`[^a-z]+`).ReplaceAllString(hash, "-"))
	}

	b.call("Page.navigate", map[string]any{"url": "http://" + a + "/"}, nil)
	b.wait("the login", "document.querySelector('#username') && document.querySelector('#login-button') && Array.from(document.querySelectorAll('select option')).some(o => o.value === 'file')")
	b.shoot("login")
	b.eval("document.querySelector('#username').value = 'admin'; document.querySelector('#password').value = 'adminpw'; document.querySelector('form select').value = 'file'; document.querySelector('#login-button').click()")
	b.wait("the minions", text("web1")+" && "+text("db1")+" && location.hash !== '#login'")
	b.shoot("minions")

	s.minion("new1", "new")
	s.await("the new key", func() bool { return strings.Contains(s.tool("salt-run", "--wheel", "key.list_all"), "new1") })
	page("keys", "web1", "new1", "unaccepted")
	b.command("new1", "wheel.key.accept")
	s.await("the key to be accepted", func() bool {
		return regexp.MustCompile(`(?s)minions:\s+.*- new1.*minions_denied`).MatchString(s.tool("salt-run", "--wheel", "key.list_all"))
	})
	b.shoot("accepted")
	b.close()

	page("grains", "web1", "db1", "grains")
	page("pillars", "web1", "db1")
	page("schedules", "web1", "db1")
	page("mine", "web1")
	page("beacons", "web1")
	page("nodegroups", "all", "web")
	b.command("web*", "test.ping")
	b.wait("the return", text("true"))
	b.shoot("run")
	b.close()

	page("events", "Recent Events", "press")
	b.eval("Array.from(document.querySelectorAll('.small-button')).filter(e => e.offsetParent !== null && /[\u25b6\u2bc8]/.test(e.textContent)).forEach(e => e.click())")
	s.tool("salt", "web1", "test.ping")
	b.wait("the events of a job", text("salt/job/"))
	b.shoot("events-live")
	jid := regexp.MustCompile(`\d{20}`).FindString(fmt.Sprint(b.eval("document.body.innerText")))
	page("jobs", "test.ping")
	page("job?id="+jid, "test.ping", "web1")
	for _, hash := range []string{"highstate", "orchestrations", "templates", "reactors", "options", "issues"} {
		page(hash)
		b.wait(hash, "location.hash.startsWith('#"+hash+"') && document.body.innerText.length > 50")
	}
	page("logout")
	b.wait("the login", "document.querySelector('#login-button')")
	b.shoot("logout")
	for _, p := range b.problems {
		t.Errorf("the page complains: %s", p)
	}
}

// command types a command into the command box and runs it.
func (b *browser) command(target, command string) {
	b.t.Helper()
	b.eval("document.querySelector('#button-manual-run').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
	b.wait("the box for commands", "document.querySelector('#command') && document.querySelector('#command').offsetParent !== null")
	b.eval(fmt.Sprintf("for (const [id, v] of [['target', %q], ['command', %q]]) { const e = document.querySelector('#' + id); e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true})) }", target, command))
	b.eval("document.querySelector('#popup-output').innerText = ''; document.querySelector('#run-command').click()")
	b.wait("the answer", "document.querySelector('#popup-output').innerText.length > 0 && !document.querySelector('#popup-output').innerText.startsWith('loading')")
}

// close closes the command box.
func (b *browser) close() {
	b.t.Helper()
	b.eval("document.querySelector('#cmd-close-button').click()")
}
