package runner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// A large return is passed on as it was recorded, a small one is a value.
func TestLargeReturnsAreNotBuilt(t *testing.T) {
	for text, large := range map[string]bool{"x": false, strings.Repeat("x", maxBuilt): true} {
		one, err := readRet(fmt.Appendf(nil, `{"id":"web1","fun":"cmd.run","fun_args":["x"],"return":%q,"retcode":3,"success":false,"killed":"by root"}`, text))
		if err != nil {
			t.Fatal(err)
		}
		raw, is := one.Return.V.(value.Raw)
		if is != large || !large && one.Return.V != text || large && string(raw) != `"`+text+`"` {
			t.Errorf("a return of %d bytes is a %T", len(text), one.Return.V)
		}
		if one.ID != "web1" || one.Fun.V != "cmd.run" || one.Retcode.V != int64(3) || one.succeeded() || one.Killed != "by root" {
			t.Errorf("beside it %+v was read", one)
		}
	}
}

// Neither are large arguments.
func TestLargeArgumentsAreNotBuilt(t *testing.T) {
	args := `["` + strings.Repeat("x", maxBuilt) + `"]`
	one, err := readRet([]byte(`{"id":"web1","fun":"cmd.run","fun_args":` + args + `,"return":1,"retcode":0,"success":true}`))
	if raw, is := one.FunArgs.V.(value.Raw); err != nil || !is || string(raw) != args {
		t.Errorf("arguments of %d bytes are a %T, %v", len(args), one.FunArgs.V, err)
	}
}

// A return that two members of a cluster have stored is one return.
func TestAReturnThatIsStoredTwiceIsShownOnce(t *testing.T) {
	r := &record{states: map[string]any{}, returned: map[salt.MinionID]bool{}}
	for _, text := range []string{"first", "second"} {
		e := event.Event{Tag: "salt/job/1/ret/web1", Data: fmt.Appendf(nil, `{"id":"web1","return":%q,"success":true}`, text)}
		if err := r.add(e); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.rets) != 1 || r.rets[0].Return.V != "first" {
		t.Errorf("shown: %+v", r.rets)
	}
}
