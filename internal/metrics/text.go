package metrics

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// textType is the content type of the text format of Prometheus, which write writes.
const textType = "text/plain; version=0.0.4; charset=utf-8"

// write writes samples in the order of their names and labels. Of several with the same labels,
// with which a collector would refuse everything, it writes the first.
func write(w io.Writer, samples []Sample) {
	samples = slices.Clone(samples)
	slices.SortStableFunc(samples, func(a, b Sample) int {
		return cmp.Or(cmp.Compare(a.Metric.Name, b.Metric.Name), slices.Compare(a.Labels, b.Labels))
	})
	var last Sample
	for _, s := range samples {
		switch {
		case s.Metric != last.Metric:
			writeHead(w, s.Metric.Name, s.Metric.Help, s.Metric.kind)
		case slices.Equal(s.Labels, last.Labels):
			continue
		}
		fmt.Fprintf(w, "%s%s %s\n", s.Metric.Name, s.labels(), number(s.Value))
		last = s
	}
}

func writeHead(w io.Writer, name, help, kind string) {
	fmt.Fprintf(w, "# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n", name, help, kind)
}

// inQuotes escapes what ends the value of a label, or its line.
var inQuotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// labels returns {name="value",...}, in the order of names; "" without labels.
func (s Sample) labels() string {
	pairs := make([]string, len(s.Labels))
	for i, value := range s.Labels {
		pairs[i] = s.Metric.Labels[i] + `="` + inQuotes.Replace(strings.ToValidUTF8(value, "\uFFFD")) + `"`
	}
	if len(pairs) == 0 {
		return ""
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
