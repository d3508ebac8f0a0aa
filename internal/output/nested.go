package output

import (
	"strings"

	"github.com/brinebus/brine/internal/value"
)

// formatNested is nested, the default: maps and lists by indentation, maps under
// a line of hyphens, the items of a list behind a hyphen.
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
	bullet color // of the mark before a list or a map within a list
	lines  []string
}

func (n *nested) line(indent int, text string) {
	n.lines = append(n.lines, strings.Repeat(" ", indent)+text)
}

// show adds the lines of v. The first line of what is no list and no map stands
// behind prefix.
func (n *nested) show(v any, indent int, prefix string) {
	switch x := v.(type) {
	case string:
		for _, text := range splitLines(x) {
			n.line(indent, n.paint(green, prefix+n.stripped(text)))
			prefix = strings.Repeat(" ", len(prefix))
		}
	case []any:
		n.list(x, indent)
	case map[string]any:
		n.dict(x, indent)
	default:
		n.line(indent, n.paint(lightYellow, prefix+value.Repr(v)))
	}
}

func (n *nested) list(list []any, indent int) {
	for _, v := range list {
		switch v.(type) {
		case []any, map[string]any:
			n.line(indent, n.paint(n.bullet, "|_"))
			n.show(v, indent+2, "")
		default:
			n.show(v, indent, "- ")
		}
	}
}

func (n *nested) dict(m map[string]any, indent int) {
	if indent > 0 {
		n.line(indent, n.paint(n.frame, "----------"))
	}
	for _, k := range sortedKeys(m) {
		n.line(indent, n.paint(n.frame, n.visible(k))+":")
		n.show(m[k], indent+4, "")
	}
}

// formatNoReturn is no_return: the lines for minions that did not answer.
func formatNoReturn(o Options, data any) (string, error) {
	n := nested{Options: o, frame: cyan}
	n.alarm(data, 0)
	return strings.Join(n.lines, "\n"), nil
}

// alarm shows maps and text, the text in red. Other values have no place in it.
func (n *nested) alarm(v any, indent int) {
	switch x := v.(type) {
	case string:
		for text := range strings.SplitSeq(x, "\n") {
			n.lines = append(n.lines, n.paint(red, strings.Repeat(" ", indent)+n.visible(text)))
		}
	case map[string]any:
		for _, k := range sortedKeys(x) {
			n.line(indent, n.paint(n.frame, n.visible(k))+":")
			n.alarm(x[k], indent+4)
		}
	}
}
