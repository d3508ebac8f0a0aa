package job

import (
	"encoding/json"
	"fmt"

	"github.com/brinebus/brine/internal/value"
)

// ReadReport parses a report without decoding the returns: its values are value.Raw and slices of
// b. It calls other for members that do not belong to a report; nil skips them.
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

// Limits of the other members of a report, in bytes: they are decoded, and a malicious minion could
// make them take a hundred times the memory of the message.
const (
	maxShort  = 256 << 10 // a number, or one for each of some thousand commands
	maxOutput = 4 << 20   // for 64 KB of output, in which each byte is escaped or a separate text
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

// Decode decodes the values of a report that was parsed raw.
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

// DecodeExact is Decode with exact types, for printing.
func (r *Report) DecodeExact() error {
	raw, ok := r.Return.V.(value.Raw)
	if !ok {
		return r.Decode()
	}
	exact, err := value.DecodeExact(raw)
	if err != nil {
		return err
	}
	r.Return.V = exact
	return r.Decode()
}

// ReadUpdate decodes a complete update.
func ReadUpdate(b []byte) (Update, error) { return readUpdate(b, (*Report).Decode) }

// ReadUpdateExact is ReadUpdate with exact types, for printing.
func ReadUpdateExact(b []byte) (Update, error) { return readUpdate(b, (*Report).DecodeExact) }

func readUpdate(b []byte, decode func(*Report) error) (u Update, err error) {
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
		err = decode(&u.Report)
	}
	return u, err
}

// ReadUnread reads an update whose values are not to be decoded, and why: a return counts as failed.
func ReadUnread(b []byte, why error) (u Update, err error) {
	err = value.Members(b, func(key string, v []byte) error {
		switch key {
		case "id":
			return value.Text(v, &u.ID)
		case "state":
			return value.Text(v, &u.State)
		}
		return nil
	})
	switch {
	case err != nil:
	case u.State.Returned():
		u.State, u.Return.V, u.Retcode.V, u.Success.V = Failed, "the return is not read: "+why.Error(), int64(1), false
	case u.ID != "" && u.State.Final():
		u.Text = "the reason is not read: " + why.Error()
	}
	return u, err
}

// Append appends the update to b as one line of JSON without a line end.
func (u Update) Append(b []byte) ([]byte, error) {
	if u.Waiting != "" {
		b, err := value.Append(append(b, waitingStart...), u.Waiting)
		return append(b, '}'), err
	}
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

// members returns the members of a report without output.
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

// AppendReturn appends a report to b as one line of JSON, with its commands.
func (r Report) AppendReturn(b []byte, commands []Command) ([]byte, error) {
	b, err := AppendCommands(append(b, `{"commands":`...), commands)
	if err != nil {
		return nil, err
	}
	b, err = value.AppendMembers(b, r.members()...)
	return append(b, '}'), err
}
