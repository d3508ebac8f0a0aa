package output

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/value"
)

// tableWidth is the column width at which text wraps.
const tableWidth = 50

// formatTable is table: each list of maps or of lists becomes a table, under the keys that lead to
// it. Data without such a list is printed as nested.
func formatTable(o Options, data any) (string, error) {
	if !hasTable(data) {
		return formatNested(o, data)
	}
	t := table{nested{Options: o}}
	t.walk(data, o.Margin)
	return strings.Join(t.lines, "\n"), nil
}

func hasTable(v any) bool {
	if list, ok := v.([]any); ok {
		return tableRows(list) != nil
	}
	m, _ := value.Ordered(v)
	return slices.ContainsFunc(m, func(e value.Entry) bool { return hasTable(e.V) })
}

// tableRows returns the cells of a list of maps, with the keys as the first row, or of a list of
// lists; nil if the list is neither.
func tableRows(list []any) [][]string {
	keys := map[string]any{}
	var rows [][]string
	for _, item := range list {
		if list, ok := value.List(item); ok {
			row := make([]string, len(list))
			for i, v := range list {
				row[i] = str(v)
			}
			rows = append(rows, row)
		}
		m, _ := value.Ordered(item)
		for _, e := range m {
			keys[str(e.Key)] = nil
		}
	}
	switch {
	case len(keys) == 0 && len(rows) == len(list):
		return rows
	case len(keys) > 0 && len(rows) == 0:
		return mapRows(list, slices.Sorted(maps.Keys(keys)))
	}
	return nil
}

// mapRows returns the heading and one row for each map; a cell is empty if its key is missing. It
// returns nil if an item is not a map.
func mapRows(list []any, keys []string) [][]string {
	rows := [][]string{make([]string, len(keys))}
	for i, k := range keys {
		rows[0][i] = title(k)
	}
	for _, item := range list {
		m, ok := plainMap(item)
		if !ok {
			return nil
		}
		row := make([]string, len(keys))
		for i, k := range keys {
			if v, ok := m[k]; ok {
				row[i] = str(v)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// title converts a key to a heading: "last_move" becomes "Last Move".
func title(key string) string {
	inWord := false
	return strings.Map(func(r rune) rune {
		first := !inWord
		inWord = unicode.IsLetter(r)
		switch {
		case r == '_':
			return ' '
		case first:
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, key)
}

type table struct{ nested }

func (t *table) walk(v any, indent int) {
	m, ok := value.Sorted(v)
	if !ok {
		t.leaf(v, indent)
		return
	}
	for _, e := range m {
		t.line(indent, t.visible(str(e.Key))+":")
		t.line(indent, "----------")
		t.walk(e.V, indent+4)
	}
}

func (t *table) leaf(v any, indent int) {
	list, _ := v.([]any)
	rows := tableRows(list)
	if rows == nil {
		t.show(v, indent, "")
		return
	}
	t.grid(rows, indent)
}

// grid draws the rows, wrapped at tableWidth and centred, with rules between them.
func (t *table) grid(rows [][]string, indent int) {
	var wrapped [][][]string // row, cell, line
	var widths []int
	for _, row := range rows {
		cells := make([][]string, len(row))
		for i, cell := range row {
			cells[i] = wrap(t.stripped(cell))
			if i == len(widths) {
				widths = append(widths, 0)
			}
			for _, line := range cells[i] {
				widths[i] = max(widths[i], utf8.RuneCountInString(line))
			}
		}
		wrapped = append(wrapped, cells)
	}
	total := 1
	for _, w := range widths {
		total += w + 3
	}
	rule := strings.Repeat("-", total)
	t.line(indent, rule)
	for _, cells := range wrapped {
		t.row(cells, widths, indent)
		t.line(indent, rule)
	}
}

// row draws one row, as high as its highest cell.
func (t *table) row(cells [][]string, widths []int, indent int) {
	height := 1
	for _, lines := range cells {
		height = max(height, len(lines))
	}
	for y := range height {
		drawn := make([]string, len(widths))
		for i, w := range widths {
			text := ""
			if i < len(cells) && y < len(cells[i]) {
				text = cells[i][y]
			}
			drawn[i] = center(text, w)
		}
		t.line(indent, "| "+strings.Join(drawn, " | ")+" |")
	}
}

// wrap splits text into lines shorter than tableWidth, at blanks if possible.
func wrap(text string) []string {
	var lines []string
	for _, line := range splitLines(text) {
		current := ""
		for i, word := range strings.Split(line, " ") {
			switch {
			case i == 0:
				current = word
			case utf8.RuneCountInString(current)+utf8.RuneCountInString(word) >= tableWidth:
				lines = append(lines, current)
				current = word
			default:
				current += " " + word
			}
		}
		lines = append(lines, current)
	}
	return slices.Clip(lines)
}

// center centres text in width characters as Python does: an odd blank goes to the left if width is
// odd too.
func center(text string, width int) string {
	pad := width - utf8.RuneCountInString(text)
	left := pad/2 + pad&width&1
	return strings.Repeat(" ", left) + text + strings.Repeat(" ", pad-left)
}
