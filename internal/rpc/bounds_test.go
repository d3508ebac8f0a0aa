package rpc

import (
	"encoding/json"
	"strings"
	"testing"
)

func repeat(open, part, end string, n int) []byte {
	return []byte(open + strings.Repeat(part+",", n-1) + part + end)
}

// A body that is small when sent and large when decoded is refused before it is decoded.
func TestBodiesThatGrow(t *testing.T) {
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"maps in a list":           {repeat(`[`, `{"":0}`, `]`, 1_000_000), "too many parts"},
		"lists in a list":          {repeat(`[`, `[]`, `]`, 2_000_000), "too many parts"},
		"maps under names":         {repeat(`{`, `"":{}`, `}`, 1_000_000), "too many parts"},
		"numbers":                  {repeat(`[`, `0`, `]`, 8_000_000), "too many parts"},
		"deep":                     {[]byte(strings.Repeat(`[`, 100_000) + strings.Repeat(`]`, 100_000)), "levels deep"},
		"deep maps":                {[]byte(strings.Repeat(`{"":`, 100_000)), "levels deep"},
		"one text of 60 MB":        {[]byte(`"` + strings.Repeat("{[,:", 15<<20) + `"`), ""},
		"quotes in texts":          {repeat(`[`, `"\"{\\"`, `]`, 100_000), ""},
		"a million of names":       {repeat(`[`, `"/usr/share/doc/x"`, `]`, 1_000_000), ""},
		"a hundred thousand maps":  {repeat(`[`, `{"name":"x","version":"1"}`, `]`, 100_000), ""},
		"a text without an end":    {[]byte(`"abc`), ""},
		"a text that ends escaped": {[]byte(`"abc\`), ""},
		"nothing":                  {nil, ""},
	} {
		err := CheckBuilt(c.body)
		if c.want == "" && err != nil || c.want != "" && (CodeOf(err) != Usage || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// The estimate ignores the content of strings, however they are escaped.
func FuzzEstimate(f *testing.F) {
	for _, s := range []string{"", `"`, `\`, `\"`, `{"a":[1,2]}`, "\x00\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted, err := json.Marshal(s)
		if err != nil {
			t.Skip()
		}
		if cost, depth := estimate(quoted, maxBuilt); cost != 0 || depth != 0 {
			t.Errorf("the text %s costs %d, %d deep", quoted, cost, depth)
		}
		if cost, depth := estimate([]byte("["+string(quoted)+",{}]"), maxBuilt); cost != sliceCost+entryCost+mapCost || depth != 2 {
			t.Errorf("behind the text %s it goes on at %d, %d deep", quoted, cost, depth)
		}
		estimate([]byte(s), maxBuilt) // for any input it returns
	})
}
