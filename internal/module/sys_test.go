package module

import (
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/function"
)

func TestSys(t *testing.T) {
	host := &function.Host{Services: &Services{Returners: func() []string { return []string{"local_cache", "rawfile_json", "syslog"} }}}
	same(t, "list_modules", good(t, host, "sys.list_modules", nil), modules.Names())
	same(t, "list_modules s*", good(t, host, "sys.list_modules", nil, "sy*"), []any{"sys", "sysctl", "system", "systemd"})
	same(t, "list_functions", good(t, host, "sys.list_functions", nil), modules.Functions(""))
	same(t, "list_functions of two", good(t, host, "sys.list_functions", nil, "key", "sys.list_[mr]*s", "key.*"),
		[]any{"key.finger", "key.finger_master", "sys.list_modules", "sys.list_returners", "sys.list_runners"})
	same(t, "list_returners", good(t, host, "sys.list_returners", nil, "*s*l*g"), []any{"syslog"})
	same(t, "list_returners of none", good(t, nil, "sys.list_returners", nil), []any{})
	same(t, "reload_modules", good(t, host, "sys.reload_modules", nil), true)
	all := good(t, host, "sys.doc", nil).(map[string]any)
	if len(all) != len(modules.Functions("")) {
		t.Errorf("%d documents for %d functions", len(all), len(modules.Functions("")))
	}
	if two := good(t, host, "sys.doc", nil, "key", "test.ping").(map[string]any); len(two) != 3 {
		t.Errorf("sys.doc key test.ping = %v", two)
	}
	same(t, "doc of nothing", good(t, host, "sys.doc", nil, "nosuch*"), map[string]any{})
	bad(t, host, "sys.doc", `there is no module "nosuch"`, nil, "nosuch")
	bad(t, host, "sys.doc", "'test.pign' is not available. Did you mean test.ping?", nil, "test.pign")
}

func TestArgspec(t *testing.T) {
	spec := good(t, nil, "sys.argspec", nil, "test.r*").(map[string]any)
	same(t, "rand_sleep", spec["test.rand_sleep"], map[string]any{"args": []any{"max"}, "defaults": []any{60}, "varargs": nil, "kwargs": nil})
	same(t, "raise_exception", spec["test.raise_exception"], map[string]any{"args": []any{"name"}, "defaults": nil, "varargs": true, "kwargs": true})
	if cmd := good(t, nil, "sys.argspec", nil, "cmd").(map[string]any); !slices.Contains(cmd["cmd.run"].(map[string]any)["args"].([]any), any("runas")) {
		t.Errorf("cmd = %v", cmd)
	}
}
