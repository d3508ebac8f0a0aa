package master_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/deadline"
)

// keep puts entries into the mine.
func keep(t *testing.T, c *rpc.Conn, entries map[string]mine.Entry) error {
	t.Helper()
	return c.Ask(t.Context(), protocol.OpMine, mine.Change{Put: entries}, nil)
}

func entry(v any) mine.Entry { return mine.Entry{Data: value.Value{V: v}} }

// read returns what a minion gets of the mine: "id/name=value ...".
func read(t *testing.T, c *rpc.Conn, tgt, kind string, names ...string) (string, error) {
	t.Helper()
	s, err := c.Call(protocol.OpMineGet, mine.Query{Target: tgt, TargetType: kind, Names: names})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	for {
		var i mine.Item
		err := s.Decode(ctx, &i)
		if errors.Is(err, io.EOF) {
			return strings.Join(got, " "), nil
		}
		if err != nil {
			return "", err
		}
		got = append(got, fmt.Sprintf("%s/%s=%v", i.ID, i.Name, i.Data.V))
	}
}

// A minion writes what is its own, whatever it says, and reads what others let it.
func TestTheMine(t *testing.T) {
	w := start(t, "auto_accept: True\nnodegroups: {webs: 'web*'}\n")
	web1, web2, db1 := w.minion("web1", pong), w.minion("web2", pong), w.minion("db1", pong)
	forMe := func(v, allow, kind string) mine.Entry {
		return mine.Entry{Data: value.Value{V: v}, Allow: allow, AllowType: kind}
	}
	for id, c := range map[salt.MinionID]*rpc.Conn{"web1": web1.Conn, "web2": web2.Conn, "db1": db1.Conn} {
		if err := keep(t, c, map[string]mine.Entry{"name": entry(string(id))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := keep(t, db1.Conn, map[string]mine.Entry{
		"one": forMe("s", "web1", ""), "list": forMe("s", "web1,db1", "list"), "group": forMe("s", "webs", "nodegroup"), "own": forMe("s", "E@web2$", "compound"),
		"nogroup": forMe("s", "nosuch", "nodegroup"), "grain": forMe("s", "not G@os:x", "compound"),
	}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from      *rpc.Conn
		tgt, kind string
		names     []string
		want      string
		code      rpc.Code
	}{
		"all":                       {web1.Conn, "*", "glob", []string{"name"}, "db1/name=db1 web1/name=web1 web2/name=web2", ""},
		"one that there is not":     {web1.Conn, "*", "glob", []string{"nosuch"}, "", ""},
		"nobody":                    {web1.Conn, "x*", "glob", []string{"name"}, "", ""},
		"several":                   {web1.Conn, "db1", "glob", []string{"name", "one"}, "db1/name=db1 db1/one=s", ""},
		"not for this one":          {web2.Conn, "db1", "glob", []string{"name", "one"}, "db1/name=db1", ""},
		"for a list":                {web1.Conn, "db1", "glob", []string{"list"}, "db1/list=s", ""},
		"not in the list":           {web2.Conn, "db1", "glob", []string{"list"}, "", ""},
		"for a group":               {web2.Conn, "db1", "glob", []string{"group"}, "db1/group=s", ""},
		"not in the group":          {db1.Conn, "db1", "glob", []string{"group"}, "", ""},
		"not even its owner":        {db1.Conn, "db1", "glob", []string{"own"}, "", ""},
		"a group that there is not": {web1.Conn, "db1", "glob", []string{"nogroup"}, "", ""},
		"no name":                   {web1.Conn, "*", "glob", nil, "", rpc.Usage},
		"a name that is none":       {web1.Conn, "*", "glob", []string{"a,b"}, "", rpc.Usage},
		"too many names":            {web1.Conn, "*", "glob", strings.Split(strings.Repeat("a ", 101), " ")[:101], "", rpc.Usage},
		"a mistake":                 {web1.Conn, "a and (", "compound", []string{"name"}, "", rpc.Usage},
		"a kind that there is not":  {web1.Conn, "*", "bogus", []string{"name"}, "", rpc.Usage},
		"a pattern of pillar":       {web1.Conn, "a:*", "pillar", []string{"name"}, "", rpc.Denied},
	} {
		got, err := read(t, c.from, c.tgt, c.kind, c.names...)
		if got != c.want || rpc.CodeOf(err) != c.code {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, c.want, c.code)
		}
	}
	// The message of a minion has no word in whose entries they are.
	forged := map[string]any{"id": "web1", "put": map[string]any{"name": map[string]any{"data": "forged", "id": "web1"}}}
	if err := web2.Ask(t.Context(), protocol.OpMine, forged, nil); err != nil {
		t.Fatal(err)
	}
	if got, _ := read(t, db1.Conn, "web*", "glob", "name"); got != "web1/name=web1 web2/name=forged" {
		t.Errorf("after a forged id: %s", got)
	}
	// Deleting and clearing are for one's own, too.
	if err := web2.Ask(t.Context(), protocol.OpMine, mine.Change{Clear: true, Delete: []string{"name"}}, nil); err != nil {
		t.Fatal(err)
	}
	if got, _ := read(t, web1.Conn, "*", "glob", "name"); got != "db1/name=db1 web1/name=web1" {
		t.Errorf("after a clear: %s", got)
	}
	if _, err := read(t, w.user(), "*", "glob", "name"); rpc.CodeOf(err) != rpc.NotFound {
		t.Errorf("a user asks as a minion does: %v, want NotFound", err)
	}
}

func TestTheMineIsBounded(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	web1 := w.minion("web1", pong)
	large := entry(strings.Repeat("x", 500<<10))
	if err := keep(t, web1.Conn, map[string]mine.Entry{"one": large}); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]map[string]mine.Entry{
		"two are too large":    {"two": large},
		"one is too large":     {"one": entry(strings.Repeat("x", 1<<20))},
		"no name":              {"": entry(1)},
		"a comma":              {"a,b": entry(1)},
		"a line":               {"a\nb": entry(1)},
		"a long name":          {strings.Repeat("n", 257): entry(1)},
		"an unreadable target": {"a": {Allow: "x and (", AllowType: "compound"}},
		"a target of no kind":  {"a": {Allow: "x", AllowType: "bogus"}},
		"one of two":           {"a": entry(1), "b": {Allow: "(", AllowType: "pcre"}},
	} {
		if err := keep(t, web1.Conn, put); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("%s: %v, want Usage", name, err)
		}
	}
	if got, err := read(t, web1.Conn, "*", "glob", "two", "a", "b"); got != "" || err != nil {
		t.Errorf("of what was refused there is %q, %v", got, err)
	}
	if got, err := read(t, web1.Conn, "*", "glob", "one"); err != nil || len(got) != len("web1/one=")+500<<10 {
		t.Errorf("what was there before is gone: %d bytes, %v", len(got), err)
	}
}

// TestAKeyDeletedAtOnceIsCut: a key that is deleted before the watch on the key directory has
// told of its acceptance ends the connection that came in with it, and leaves nothing.
func TestAKeyDeletedAtOnceIsCut(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	for i := range 5 {
		id := salt.MinionID(fmt.Sprintf("web%d", i))
		l := w.minion(id, pong)
		if err := os.Remove(filepath.Join(w.cfg.PKIDir, "minions", string(id))); err != nil {
			t.Fatal(err)
		}
		select {
		case <-l.Closed:
		case <-time.After(time.Minute):
			t.Fatalf("%s stays, whose key was deleted", id)
		}
	}
}

func TestTheMineOfADeletedMinionVanishes(t *testing.T) {
	w := start(t, "auto_accept: True\n")
	web1, web2 := w.minion("web1", pong), w.minion("web2", pong)
	for _, c := range []*rpc.Conn{web1.Conn, web2.Conn} {
		if err := keep(t, c, map[string]mine.Entry{"a": entry(int64(1))}); err != nil {
			t.Fatal(err)
		}
	}
	store, err := pki.OpenExistingStore(w.cfg.PKIDir)
	if err != nil {
		t.Fatal(err)
	}
	remove := func(id salt.MinionID) {
		entries, err := store.Of(id)
		if err != nil || len(entries) != 1 {
			t.Fatalf("entries of %s: %v, %v", id, entries, err)
		}
		if err := store.Delete(entries[0]); err != nil {
			t.Fatal(err)
		}
	}
	remove("web1")
	deadline.Receive(t, web1.Closed, "Closed")
	if got, err := read(t, web2.Conn, "*", "glob", "a"); got != "web2/a=1" || err != nil {
		t.Errorf("after the key was deleted: %q, %v", got, err)
	}
	// Another machine under the same id inherits nothing.
	heir := w.minion("web1", pong)
	if got, err := read(t, heir.Conn, "*", "glob", "a"); got != "web2/a=1" || err != nil {
		t.Errorf("the next holder of the id reads %q, %v", got, err)
	}
	// Nor after a deletion while the master did not run.
	if err := keep(t, heir.Conn, map[string]mine.Entry{"a": entry(int64(2))}); err != nil {
		t.Fatal(err)
	}
	w.stop()
	remove("web1")
	w.run()
	web3 := w.minion("web3", pong)
	if got, err := read(t, web3.Conn, "*", "glob", "a"); got != "web2/a=1" || err != nil {
		t.Errorf("after a restart: %q, %v", got, err)
	}
	w.minion("web1", pong)
	if got, err := read(t, web3.Conn, "*", "glob", "a"); got != "web2/a=1" || err != nil {
		t.Errorf("after a restart, with a new key: %q, %v", got, err)
	}
}
