package protocol

import (
	"encoding"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/mine"
)

// bodies are those of all requests.
var bodies = []any{
	Ask{}, Hello{}, Fire{}, Listen{}, Publish{}, Follow{}, Run{}, KeyAction{}, Confirm{}, EndOf{}, Dead{}, Purge{}, Refresh{}, LocalReturn{}, Login{},
	Complete{}, Profile{}, Via{}, mine.Change{}, mine.Query{}, Files{}, GetFile{}, fileserver.Piece{}, Schedule{}, job.BatchOptions{},
}

// FuzzBodies reads any text as the body of each request: what is read can be written.
func FuzzBodies(f *testing.F) {
	for i, body := range bodies {
		b, err := json.Marshal(body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), b)
	}
	f.Add(uint8(4), []byte(`{"tgt":"*","tgt_type":"glob","commands":[{"fun":"test.ping","arg":[],"kwarg":{}}],"batch":{"size":"10%"},"timeout":1.5,"ret_kwargs":{"a":[1]}}`))
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		v := reflect.New(reflect.TypeOf(bodies[int(which)%len(bodies)])).Interface()
		var err error
		if own, ok := v.(encoding.BinaryUnmarshaler); ok {
			err = own.UnmarshalBinary(b)
		} else {
			err = json.Unmarshal(b, v)
		}
		if err != nil {
			return
		}
		if _, isFire := v.(*Fire); isFire {
			return // its data is checked where it is stored, see FuzzFireBody
		}
		if _, err := Encode(v); err != nil {
			t.Errorf("%q is read as %T, which is not written: %v", b, v, err)
		}
	})
}
