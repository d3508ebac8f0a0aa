package saltapi

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
)

// configured are the settings of a file with these lines below rest_cherrypy.
func configured(t *testing.T, text string) (settings, []string, error) {
	t.Helper()
	cfg := &config.Master{}
	cfg.RootDir = "/srv/root"
	if text != "" {
		path := filepath.Join(t.TempDir(), "rest")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		if cfg.RestCherrypy, err = config.ReadRules(path); err != nil {
			t.Fatal(err)
		}
	}
	return read(cfg)
}

// Without settings no client is enabled, everything is served over TLS, and no operation is allowed
// without a login.
func TestNoClientIsEnabledByDefault(t *testing.T) {
	s, notes, err := configured(t, "")
	if err != nil || len(notes) > 0 {
		t.Fatalf("%q, %v", notes, err)
	}
	o := s.api
	if len(o.Clients) > 0 || len(o.Origins) > 0 || o.WebhookNoAuth || o.StatsNoAuth || o.Static != "" || o.App != "" {
		t.Errorf("open are %+v", o)
	}
	if !o.TLS || !o.Sessions || o.MaxBody != 1<<20 || s.port != 8000 {
		t.Errorf("the defaults are %+v, port %d", o, s.port)
	}
}

func TestSettings(t *testing.T) {
	s, notes, err := configured(t, `
port: 8443
ssl_crt: pki/api.crt
ssl_key: /abs/api.key
thread_pool: 100
cors_origin: https://here.example
authorized_ips: [127.0.0.1, '10.1.2.3/8', '::ffff:192.0.2.1']
api_acl: {users: {fred: [127.0.0.1, 10.0.0.0/8], '*': '*'}}
max_request_body_size: 2000
`)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(notes, []string{"thread_pool"}) {
		t.Errorf("without a meaning are %q", notes)
	}
	if s.port != 8443 || s.cert != "/srv/root/pki/api.crt" || s.key != "/abs/api.key" || s.api.MaxBody != 2000 || !slices.Equal(s.api.Origins, []string{"https://here.example"}) {
		t.Errorf("settings are %+v", s)
	}
	want := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32")}
	if !slices.Equal(s.api.AuthorizedIPs, want) {
		t.Errorf("addresses are %v, want %v", s.api.AuthorizedIPs, want)
	}
	if got := s.api.Users; !slices.Equal(got["fred"], []string{"127.0.0.1", "10.0.0.0/8"}) || !slices.Equal(got["*"], []string{"*"}) {
		t.Errorf("users are %v", got)
	}
}

// TestMistakesInSettings: a setting that cannot be read is never left out, since it may be
// one that closes something.
func TestMistakesInSettings(t *testing.T) {
	for text, want := range map[string]string{
		"authorised_ips: [127.0.0.1]\n":                 `there is no setting "authorised_ips"`,
		"authorized_ips: [localhost]\n":                 `authorized_ips: "localhost" is neither an address nor a network`,
		"authorized_ips: {a: b}\n":                      "is not a list of texts",
		"api_acl: {users: {fred: [somewhere]}}\n":       `"somewhere" is neither an address nor a network`,
		"api_acl: {fred: [127.0.0.1]}\n":                "api_acl: it is not a mapping with users",
		"api_acl: {users: {fred: ['*']}, groups: {}}\n": "api_acl: it is not a mapping with users",
		"disable_ssl: 'no'\n":                           "disable_ssl: no is neither true nor false",
		"port: 0\n":                                     "port: 0 is not a port",
		"port: 65536\n":                                 "port: 65536 is not a port",
		"max_request_body_size: 67108865\n":             "is not a number of bytes up to 67108864",
		"max_request_body_size: 0\n":                    "max_request_body_size: 0",
		"root_prefix: /api\n":                           "root_prefix: /api is not served",
		"cors_origin: [1]\n":                            "cors_origin: 1 is not text",
		"static: [a]\n":                                 "static: [a] is not text",
	} {
		if _, _, err := configured(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestUnknownClients(t *testing.T) {
	_, _, err := read(&config.Master{NetapiClients: []string{"local", "lokal"}})
	if err == nil || !strings.Contains(err.Error(), `"lokal" is not a client`) || !strings.Contains(salt.Hint(err), "local_async") {
		t.Errorf("%v, hint %q", err, salt.Hint(err))
	}
}
