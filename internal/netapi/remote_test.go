package netapi_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFromAnotherMachine: salt-api reaches the master over TLS with credentials that have no
// rights themselves, and serves as it does on the master's machine, with the addresses of its
// clients. When the credentials are revoked, nobody is served any longer.
func TestFromAnotherMachine(t *testing.T) {
	s := start(t)
	web := filepath.Join(s.root, "web")
	s.tool("salt-event", "creds", "web", "--dir", web)
	a := s.api("A", "sock_dir: "+s.root+"/nobody\napi_creds: "+web+"\n"+open+"  webhook_disable_auth: true\n")
	url := "http://" + a
	admin := login(t, a, "admin", "adminpw")

	res, text := post(t, url+"/", admin, `[{"client":"local","tgt":"*","fun":"test.ping"},{"client":"runner","fun":"manage.up"},{"client":"wheel","fun":"key.finger","match":"web1"}]`)
	for _, want := range []string{`"web1":true`, `"db1":true`, `["db1","web1"]`, `"tag":"salt/wheel/`} {
		if res.StatusCode != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s, want %s in\n%s", res.Status, want, text)
		}
	}
	const run = `{"client":"local","tgt":"*","fun":"test.ping","eauth":"file","username":"other","password":"otherpw"}`
	if res, text := post(t, url+"/run", "", run); res.StatusCode != http.StatusOK || !strings.Contains(text, `"web1":true`) {
		t.Errorf("run: %s\n%s", res.Status, text)
	}
	if res, _ := post(t, url+"/run", "", strings.Replace(run, "test.ping", "cmd.run", 1)); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("what is refused: %s", res.Status)
	}
	if res, _ := post(t, url+"/login", "", `{"username":"admin","password":"guess","eauth":"file"}`); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("a wrong password: %s", res.Status)
	}
	if found := s.tool("salt-run", "audit.search", "user=admin", "--out", "json"); !strings.Contains(found, `"source": "127.0.0.1"`) {
		t.Errorf("the audit log does not have the address of who asked:\n%.2000s", found)
	}
	if res, _ := post(t, url+"/hook/x", "", "{}"); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("the credentials themselves fire an event: %s", res.Status)
	}

	live := listen(t, url+"/events", "X-Auth-Token", admin)
	s.tool("salt-event", "fire", "own/one", `{"n":1}`)
	live.until(`^tag: own/one$`)
	stored := listen(t, url+"/events?since=1h&tag=own/", "X-Auth-Token", admin)
	stored.until(`^tag: own/one$`)

	res, text = send(t, "GET", url+"/metrics", admin, "", "Accept", "*/*")
	for _, want := range []string{"salt_api_event_streams 2\n", "salt_api_position_streams 1\n", "salt_api_sessions 1\n", "# TYPE salt_api_requests_total counter\n"} {
		if res.StatusCode != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("metrics: %s, want %q in\n%s", res.Status, want, text)
		}
	}

	s.tool("salt-event", "creds", "--revoke", "web")
	live.ends(time.Minute)
	stored.ends(time.Minute)
	if res, _ := post(t, url+"/", admin, `{"client":"local","tgt":"*","fun":"test.ping"}`); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("with what was revoked: %s", res.Status)
	}
}
