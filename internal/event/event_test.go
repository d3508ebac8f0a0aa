package event

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 1000, time.UTC)

func TestNewStamps(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"none":      {``, `{"_stamp":"2026-11-21T12:00:00.000001"}`},
		"empty":     {`{ }`, `{"_stamp":"2026-11-21T12:00:00.000001"}`},
		"object":    {`{"id":"x","tag":"y","data":{"a":1.0}}`, `{"id":"x","tag":"y","data":{"a":1.0},"_stamp":"2026-11-21T12:00:00.000001"}`},
		"own stamp": {`{"_stamp":"forged","a":1}`, `{"a":1,"_stamp":"2026-11-21T12:00:00.000001"}`},
		"text":      {`"just a string"`, `"just a string"`},
		"list":      {`[1, 2]`, `[1, 2]`},
	} {
		e, err := New("mytag", json.RawMessage(c.data), "web1", noon)
		if err != nil || string(e.Data) != c.want {
			t.Errorf("%s: %s, %v; want %s", name, e.Data, err, c.want)
		}
	}
	if _, err := New("mytag", json.RawMessage(`{"a":`), "", noon); err == nil {
		t.Error("broken JSON became an event")
	}
}

func TestCheckTag(t *testing.T) {
	for _, tag := range []string{"mytag", "a b", "a.b", "*", ">", "a//b", "/", "ü", strings.Repeat("a/", 500)} {
		if err := CheckTag(tag); err != nil {
			t.Errorf("CheckTag(%q): %v", tag, err)
		}
	}
	for _, tag := range []string{"", "a\nb", "a\x00", "\xff", strings.Repeat("a", MaxTag+1)} {
		if err := CheckTag(tag); !errors.Is(err, ErrTag) {
			t.Errorf("CheckTag(%q) = %v, want ErrTag", tag, err)
		}
	}
}

func TestMinionMayNotSpeakForTheMaster(t *testing.T) {
	for _, tag := range []string{
		"salt/job/20261121113344286549/ret/web2", "salt/job/20261121113344286549/new", "salt/auth", "salt/key", "salt/run/x",
		"salt/wheel/x/ret", "salt/presence/change", "salt/minion/web2/start", "salt/minion/web1x/start", "salt/minion",
		"salt/minion/web1/../web2/start", "salt/minion/web1/..", "salt/minion/web1/ .. /web2", "salt/minion/web1/./start", "x/../salt/job/1/ret/web2", "../salt/auth", "salt/./minion/web2/start",
		"salt/beacon/web2/load", "salt/beacon", "SALT//beacon/web2", "salt/beacon/web1/../web2/load", "salt/journal/drop",
		"SALT/JOB/x", "salt//job/x", "/salt/job/x", "salt/ job/x", " salt/job", "salt/job/", "salt/peer/refused",
		"20261121113344286549", "salt/audit/x", "key", "minion/refresh/web2",
		"//",
	} {
		if err := CheckMinionTag("web1", tag); err == nil {
			t.Errorf("web1 may fire %q", tag)
		}
	}
	for _, tag := range []string{"mytag", "salt/minion/web1/start", "salt/beacon/web1/load", "minion_start", "salty/job", "minion/refresh/web1", "keys", "app/../x", "salt/minion/web1/...", "a/.b"} {
		if err := CheckMinionTag("web1", tag); err != nil {
			t.Errorf("web1 may not fire %q: %v", tag, err)
		}
	}
}

func TestSubject(t *testing.T) {
	const jid = "20261121113344286549"
	for tag, want := range map[string]string{
		"mytag":                              "salt.event.mytag",
		"my.tag/a b/c":                       "salt.event.my%2Etag.a%20b",
		"":                                   "salt.event.%",
		"*/>":                                "salt.event.%2A.%3E",
		"salt/job/" + jid + "/new":           "salt.event.salt.job." + jid + ".new",
		"salt/job/" + jid + "/ret/web1":      "salt.event.salt.job." + jid + ".ret",
		"salt/job/" + jid + "/evil/web1":     "salt.event.salt.job." + jid + ".other",
		"salt/job/notajid/ret/web1":          "salt.event.salt.job",
		"salt/run/" + jid + "/ret":           "salt.event.salt.run." + jid,
		strings.Repeat("x", 200) + "/" + "y": "salt.event." + strings.Repeat("x", maxToken) + ".y",
	} {
		if got := Subject(tag); got != want {
			t.Errorf("Subject(%q) = %s, want %s", tag, got, want)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "web1.example.com", "%", "a%2Eb", "*", ">", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := Escape(s)
		if e == "" || strings.ContainsAny(e, ".*> \t\r\n\x00") {
			t.Errorf("Escape(%q) = %q is not a single token", s, e)
		}
		if back, ok := Unescape(e); !ok || back != s {
			t.Errorf("Unescape(%q) = %q, %v; want %q", e, back, ok, s)
		}
		if plain, ok := Unescape(s); ok && Escape(plain) != s {
			t.Errorf("two tokens for %q: %q and %q", plain, s, Escape(plain))
		}
	})
}

func FuzzCheckMinionTag(f *testing.F) {
	f.Add("salt/job/x")
	f.Add("mytag")
	f.Fuzz(func(t *testing.T, tag string) {
		if CheckMinionTag(salt.MinionID("web1"), tag) != nil {
			return
		}
		if strings.HasPrefix(tag, "salt/job") || strings.HasPrefix(tag, "salt/minion/web2") {
			if !strings.HasPrefix(tag, "salt/jobx") && (len(tag) == 8 || tag[8] == '/') {
				t.Errorf("accepted %q", tag)
			}
		}
	})
}

func TestSpeaker(t *testing.T) {
	for _, c := range []struct {
		h    Head
		want string
	}{
		{Head{"mytag", "web1"}, "web1"}, {Head{"mytag", ""}, ""}, {Head{"salt/job/20261121113344286549/ret/web1", ""}, "web1"},
		{Head{"salt/job/20261121113344286549/ret/web1", "user:root"}, "user:root"}, {Head{"salt/job/20261121113344286549/ret/a/b", ""}, "a/b"},
		{Head{"salt/job/20261121113344286549/new", ""}, ""}, {Head{"salt/run/20261121113344286549/ret", ""}, ""}, {Head{"a/job/1/ret/web1", ""}, ""},
		{Head{"minion/refresh/web1", ""}, "web1"}, {Head{"minion/refresh/web1", "user:root"}, "user:root"}, {Head{"minion/refreshed/web1", ""}, ""},
	} {
		if got := c.h.Speaker(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.h, got, c.want)
		}
	}
}
