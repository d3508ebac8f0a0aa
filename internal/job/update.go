package job

import (
	"encoding/json"
	"fmt"

	"github.com/brinebus/brine/internal/value"
)

// ReadReport reads a report without decoding what was returned: its values are
// value.Raw and parts of b. other is told of the members that no report has; nil
// passes over them.
func ReadReport(b []byte, other func(key string, v []byte) error) (r Report, err error) {
	err = value.Members(b, func(key string, v []byte) error {
		switch key {
		case "state":
			return value.Text(v, &r.State)
		case "return":
			return readRaw(&r.Return, v)
		case "retcode":
			return readShort(&r.Retcode, key, v)
		case "success":
			return readShort(&r.Success, key, v)
		case "out":
			return value.Text(v, &r.Out)
		case "text":
			return value.Text(v, &r.Text)
		case "output":
			if len(v) > maxOutput {
				return fmt.Errorf("output of %d bytes: the limit is %d", len(v), maxOutput)
			}
			return json.Unmarshal(v, &r.Output)
		case "output_end":
			return json.Unmarshal(v, &r.OutputEnd)
		}
		if other == nil {
			return nil
		}
		return other(key, v)
	})
	return r, err
}

// Bounds of what stands beside what was returned, in bytes: it is decoded, and a minion that
// means ill could make a hundred times as much of what it sends.
const (
	maxShort  = 256 << 10 // a number, or one for each of some thousand commands
	maxOutput = 4 << 20   // of 64 KB, where each byte is escaped or a text of its own
)

func readShort(to *value.Value, key string, b []byte) error {
	if len(b) > maxShort {
		return fmt.Errorf("%s of %d bytes: the limit is %d", key, len(b), maxShort)
	}
	return readRaw(to, b)
}

func readRaw(to *value.Value, b []byte) error {
	raw, err := value.NewRaw(b)
	to.V = raw
	return err
}

// Decode decodes the values of a report that was read raw.
func (r *Report) Decode() error {
	for _, v := range []*value.Value{&r.Return, &r.Retcode, &r.Success} {
		raw, ok := v.V.(value.Raw)
		if !ok {
			continue
		}
		if err := v.UnmarshalJSON(raw); err != nil {
			return err
		}
	}
	return nil
}

// ReadUpdate reads an update, all of it.
func ReadUpdate(b []byte) (u Update, err error) {
	u.Report, err = ReadReport(b, func(key string, v []byte) error {
		switch key {
		case "id":
			return value.Text(v, &u.ID)
		case "begun":
			return json.Unmarshal(v, &u.Begun)
		}
		return nil
	})
	if err == nil {
		err = u.Decode()
	}
	return u, err
}

// Append writes the update behind b as one line of JSON without a line end.
func (u Update) Append(b []byte) ([]byte, error) {
	if len(u.Output) > 0 || u.OutputEnd || len(u.Begun) > 0 {
		text, err := json.Marshal(u)
		return append(b, text...), err
	}
	b, err := value.Append(append(b, `{"id":`...), string(u.ID))
	if err != nil {
		return nil, err
	}
	b, err = value.AppendMembers(b, u.members()...)
	return append(b, '}'), err
}

// members are those of a report without output.
func (r Report) members() []value.Member {
	list := []value.Member{{Key: "return", V: r.Return.V}, {Key: "retcode", V: r.Retcode.V}, {Key: "success", V: r.Success.V}}
	if r.Out != "" {
		list = append(list, value.Member{Key: "out", V: r.Out})
	}
	if r.Text != "" {
		list = append(list, value.Member{Key: "text", V: r.Text})
	}
	return append(list, value.Member{Key: "state", V: string(r.State)})
}

// AppendReturn writes a report behind b as one line of JSON, with the commands that it
// is of.
func (r Report) AppendReturn(b []byte, commands []Command) ([]byte, error) {
	b, err := AppendCommands(append(b, `{"commands":`...), commands)
	if err != nil {
		return nil, err
	}
	b, err = value.AppendMembers(b, r.members()...)
	return append(b, '}'), err
}
