package bench

import (
	"fmt"
	"io"
	"strings"
)

// Row is one line of the table.
type Row struct {
	What        string
	Unit        string
	Brine, Bare Series
	Beside      string  // what Bare is
	Goal        float64 // of Brine's median; 0 for none
	Ratio       float64 // the goal of the ratio; 0 for none
	More        bool    // more is better
}

// ratio of Brine to bare NATS, 0 without a comparison. Where both were measured in
// the same rounds it is the median of the rounds' ratios: what slowed down the
// machine for a while slowed down both.
func (r Row) ratio() float64 {
	if len(r.Bare) == 0 || r.Bare.Median() == 0 {
		return 0
	}
	if len(r.Bare) != len(r.Brine) {
		return r.Brine.Median() / r.Bare.Median()
	}
	var each Series
	for i := range r.Brine {
		each = append(each, r.Brine[i]/r.Bare[i])
	}
	return each.Median()
}

// verdict says whether the goals are met.
func (r Row) verdict() string {
	var missed []string
	if r.Goal > 0 && r.worse(r.Brine.Median(), r.Goal) {
		missed = append(missed, "figure")
	}
	if ratio := r.ratio(); r.Ratio > 0 && ratio > 0 && r.worse(ratio, r.Ratio) {
		missed = append(missed, "ratio")
	}
	switch {
	case r.Goal == 0 && (r.Ratio == 0 || len(r.Bare) == 0):
		return ""
	case len(missed) == 0:
		return "met"
	}
	return "missed: " + strings.Join(missed, ", ")
}

func (r Row) worse(have, goal float64) bool {
	if r.More {
		return have < goal
	}
	return have > goal
}

// goals shows what is aimed at.
func (r Row) goals() string {
	sign := "<"
	if r.More {
		sign = ">"
	}
	var parts []string
	if r.Goal > 0 {
		parts = append(parts, fmt.Sprintf("%s %s %s", sign, number(r.Goal), r.Unit))
	}
	if r.Ratio > 0 {
		parts = append(parts, fmt.Sprintf("%s %.1f×", sign, r.Ratio))
	}
	return strings.Join(parts, ", ")
}

// writeHead begins a table of Markdown.
func writeHead(w io.Writer) error {
	_, err := io.WriteString(w, "| operation | Brine | bare | bare is | ratio | goal | |\n|---|---|---|---|---|---|---|\n")
	return err
}

// writeRows continues it.
func writeRows(w io.Writer, rows []Row) error {
	var b strings.Builder
	for _, r := range rows {
		ratio := ""
		if have := r.ratio(); have > 0 {
			ratio = fmt.Sprintf("%.2f", have)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n",
			r.What, r.Brine.text(r.Unit), r.Bare.text(r.Unit), r.Beside, ratio, r.goals(), r.verdict())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
