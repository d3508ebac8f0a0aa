package output

import (
	"strings"

	"github.com/brinebus/brine/internal/value"
)

// formatNested is nested, the default: maps and lists are indented, maps follow a line of hyphens,
// list items follow a hyphen.
func formatNested(o Options, data any) (string, error) {
	n := nested{Options: o, frame: cyan, bullet: green}
	if o.Failed {
		n.frame, n.bullet = red, red
	}
	n.show(data, o.Margin, "")
	return strings.Join(n.lines, "\n"), nil
}

// nested collects lines.
type nested struct {
	Options
	frame  color // of keys and of the line above a map
	bullet color // of the mark before a list or a map in a list
	lines  []string
}

func (n *nested) line(indent int, text string) {
	n.lines = append(n.lines, strings.Repeat(" ", indent)+text)
}

// show adds the lines of v. If v is neither a list nor a map, prefix precedes its first line.
func (n *nested) show(v any, indent int, prefix string) {
	switch x := v.(type) {
	case string:
		n.text(x, indent, prefix)
	case value.Bytes:
		n.text(string(x), indent, prefix)
	case []any, value.Tuple:
		list, _ := value.List(v)
		n.list(list, indent)
	case map[string]any, value.Map:
		n.dict(v, indent)
	case value.Set: // Salt prints no line for it either
	default:
		n.line(indent, n.paint(lightYellow, prefix+value.Repr(v)))
	}
}

func (n *nested) text(s string, indent int, prefix string) {
	for _, line := range splitLines(s) {
		n.line(indent, n.paint(green, prefix+n.stripped(line)))
		prefix = strings.Repeat(" ", len(prefix))
	}
}

func (n *nested) list(list []any, indent int) {
	for _, v := range list {
		switch v.(type) {
		case []any, map[string]any, value.Tuple, value.Map:
			n.line(indent, n.paint(n.bullet, "|_"))
			n.show(v, indent+2, "")
		default:
			n.show(v, indent, "- ")
		}
	}
}

func (n *nested) dict(v any, indent int) {
	if indent > 0 {
		n.line(indent, n.paint(n.frame, "----------"))
	}
	m, _ := value.Sorted(v)
	for _, e := range m {
		n.line(indent, n.paint(n.frame, n.visible(str(e.Key)))+":")
		n.show(e.V, indent+4, "")
	}
}

// formatNoReturn is no_return: the lines for minions that did not answer.
func formatNoReturn(o Options, data any) (string, error) {
	n := nested{Options: o, frame: cyan}
	n.alarm(data, 0)
	return strings.Join(n.lines, "\n"), nil
}

// alarm shows maps and text, the text in red. Other values are not shown.
func (n *nested) alarm(v any, indent int) {
	switch x := v.(type) {
	case string:
		for text := range strings.SplitSeq(x, "\n") {
			n.lines = append(n.lines, n.paint(red, strings.Repeat(" ", indent)+n.visible(text)))
		}
	case map[string]any, value.Map:
		m, _ := value.Sorted(v)
		for _, e := range m {
			n.line(indent, n.paint(n.frame, n.visible(str(e.Key)))+":")
			n.alarm(e.V, indent+4)
		}
	}
}
