package eventbus

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// TestAReturnHasTwoTags: a listener for the bare id of a job gets its returns under that id,
// each of them once, whatever else it listens to. The second tag gives nobody what they may not
// receive.
func TestAReturnHasTwoTags(t *testing.T) {
	const jid, own = "20261123113457506828", "salt/job/20261123113457506828/ret/web1"
	w := start(t)
	c := w.dial()
	now := w.mustListen(c, protocol.Listen{Tags: []string{jid}})
	var seq uint64
	for _, data := range []string{`{"return":true}`, `"` + strings.Repeat("y", longEvent) + `"`} {
		stored, err := w.events.Put(t.Context(), protocol.Fire{ID: bus.NewNonce(), Events: []event.Item{{Tag: own, Data: json.RawMessage(data)}}}, "")
		if err != nil {
			t.Fatal(err)
		}
		if seq == 0 {
			seq = stored.Seq
		}
	}
	w.mustFire(c, "app/other")
	if e := now.wantTag(jid); e.Seq != seq || e.From != "" || !strings.HasPrefix(string(e.Data), `{"return":true`) {
		t.Errorf("heard %+v", e)
	}
	w.grant("bare: {listen: '2026*'}\nown: {listen: 'salt/job/*'}\nboth: {listen: ['2026*', 'salt/job/*']}\n")
	for name, row := range map[string]struct {
		user string
		q    protocol.Listen
		want []string
	}{
		"the bare id":                   {"", protocol.Listen{Tags: []string{jid}}, []string{jid}},
		"by a pattern":                  {"", protocol.Listen{Tags: []string{"2026*6828"}, Match: event.Fnmatch}, []string{jid}},
		"both":                          {"", protocol.Listen{Tags: []string{jid, "salt/job/"}}, []string{own, own}},
		"everything":                    {"", protocol.Listen{}, []string{own, own, "app/other"}},
		"another sender":                {"", protocol.Listen{Tags: []string{jid}, Senders: []string{"web2"}}, nil},
		"who may hear both":             {"both", protocol.Listen{Tags: []string{jid}}, []string{jid}},
		"who may not hear its own tag":  {"bare", protocol.Listen{Tags: []string{jid}}, nil},
		"who may not hear the bare one": {"own", protocol.Listen{Tags: []string{"*6828", jid}, Match: event.Fnmatch}, nil},
	} {
		w.as(row.user)
		row.q.FromSeq, row.q.UntilEnd = seq, true
		got := slices.DeleteFunc(w.mustListen(c, row.q).tags(), event.IsAudit)
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: heard %q, want %q", name, got, row.want)
		}
	}
	w.as("own")
	if _, err := w.listen(c, protocol.Listen{Tags: []string{jid}}); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("the bare id, without a rule for it: %v, want a refusal", err)
	}
}
