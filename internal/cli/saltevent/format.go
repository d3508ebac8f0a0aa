package saltevent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"text/template"

	"github.com/itchyny/gojq"
	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
)

// format appends one event, given as its line of JSON, to out.
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
	return nil, cli.Usagef("option --format: %q is not a format: there are %s", name, formats)
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

// filter selects events: those for which the first result of a jq expression exists and is
// neither false nor null. An event on which the expression fails is not selected. It is for one
// goroutine.
type filter struct {
	code   *gojq.Code // nil: all pass
	env    *cli.Env
	failed bool
}

// newFilter compiles a jq expression; "" lets all pass.
func newFilter(env *cli.Env, text string) (*filter, error) {
	if text == "" {
		return &filter{env: env}, nil
	}
	query, err := gojq.Parse(text)
	if err != nil {
		return nil, cli.Usagef("option --filter: %q is not a jq expression: %v", text, err)
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return nil, cli.Usagef("option --filter: %q: %v", text, err)
	}
	return &filter{code: code, env: env}, nil
}

func (f *filter) passes(line []byte) (bool, error) {
	if f.code == nil {
		return true, nil
	}
	v, err := decode(line)
	if err != nil {
		return false, err
	}
	got, ok := f.code.Run(v).Next()
	if err, bad := got.(error); bad {
		f.fail(line, err)
		return false, nil
	}
	return ok && got != nil && got != false, nil
}

// fail reports once that the expression fails.
func (f *filter) fail(line []byte, err error) {
	if f.failed {
		return
	}
	f.failed = true
	f.env.Warn(salt.WithHint(fmt.Errorf("the filter fails on event %s: %w", nameOf(line), err), "events on which it fails do not pass; this is reported once, and the exit code will be 1"))
}

// verdict makes the result of a listener a failure if the filter has failed.
func (f *filter) verdict(err error) error {
	if err == nil && f.failed {
		return cli.Exit(cli.Failed)
	}
	return err
}
