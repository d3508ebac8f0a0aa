package saltevent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"text/template"

	"github.com/itchyny/gojq"
	urcli "github.com/urfave/cli/v2"

	"brine/internal/cli"
	"brine/internal/event"
	"brine/internal/salt"
)

// format writes one event, given as its line of JSON, behind out.
type format func(out, line []byte) ([]byte, error)

const formats = "json, tag, pretty, raw, template"

// chooseFormat reads --format and --template.
func chooseFormat(opts *urcli.Context) (format, error) {
	name := opts.String("format")
	if text := opts.String("template"); text != "" || name == "template" {
		if opts.IsSet("format") && name != "template" || text == "" {
			return nil, salt.WithHint(cli.Usagef("--format template and --template belong together"), `for example: --template '{{.tag}} {{.data.message}}'`)
		}
		return templateFormat(text)
	}
	switch name {
	case "json":
		return func(out, line []byte) ([]byte, error) { return append(append(out, line...), '\n'), nil }, nil
	case "tag":
		return tagFormat, nil
	case "raw":
		return rawFormat, nil
	case "pretty":
		return prettyFormat, nil
	}
	return nil, cli.Usagef("option --format: %q is no form: there are %s", name, formats)
}

func tagFormat(out, line []byte) ([]byte, error) {
	h, err := event.HeadOf(line)
	return append(append(out, h.Tag...), '\n'), err
}

func rawFormat(out, line []byte) ([]byte, error) {
	var e event.Event
	err := json.Unmarshal(line, &e)
	return append(append(out, e.Data...), '\n'), err
}

// prettyFormat is for people: the tag, who sent it, and the data below.
func prettyFormat(out, line []byte) ([]byte, error) {
	var e event.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, err
	}
	var data bytes.Buffer
	if err := json.Indent(&data, e.Data, "    ", "    "); err != nil {
		return nil, err
	}
	where := "not stored"
	if e.Seq > 0 {
		where = strconv.FormatUint(e.Seq, 10)
	}
	if e.From != "" {
		where += "  from " + e.From
	}
	return fmt.Appendf(out, "%s  (%s)\n    %s\n", e.Tag, where, data.Bytes()), nil
}

func templateFormat(text string) (format, error) {
	t, err := template.New("--template").Option("missingkey=zero").Funcs(template.FuncMap{"json": asJSON}).Parse(text)
	if err != nil {
		return nil, cli.Fail(cli.Usage, err)
	}
	return func(out, line []byte) ([]byte, error) {
		v, err := decode(line)
		if err != nil {
			return nil, err
		}
		b := bytes.NewBuffer(out)
		if err := t.Execute(b, v); err != nil {
			return nil, err
		}
		b.WriteByte('\n')
		return b.Bytes(), nil
	}, nil
}

func asJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// decode reads a line with its numbers as they were written.
func decode(line []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// filter says whether an event passes.
type filter func(line []byte) (bool, error)

// newFilter compiles a jq expression. An event passes when the first result of
// the expression is neither false nor null, and there is one; where the
// expression fails on it, it does not pass.
func newFilter(text string) (filter, error) {
	if text == "" {
		return func([]byte) (bool, error) { return true, nil }, nil
	}
	query, err := gojq.Parse(text)
	if err != nil {
		return nil, cli.Usagef("option --filter: %q is no jq expression: %v", text, err)
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return nil, cli.Usagef("option --filter: %q: %v", text, err)
	}
	return func(line []byte) (bool, error) {
		v, err := decode(line)
		if err != nil {
			return false, err
		}
		got, ok := code.Run(v).Next()
		if !ok || got == nil || got == false {
			return false, nil
		}
		_, failed := got.(error)
		return !failed, nil
	}, nil
}
