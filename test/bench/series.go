package bench

import (
	"fmt"
	"slices"
)

// Series is what was measured of one thing, in the order of the rounds.
type Series []float64

// Quantile returns the value below which the part q of the series lies, 0 for an
// empty series. q is between 0 and 1.
func (s Series) Quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Median is the middle value.
func (s Series) Median() float64 { return s.Quantile(0.5) }

// text shows the median, and in brackets the best and the third quartile: on a
// shared machine the best is what the work costs and the quartile what the
// neighbours add.
func (s Series) text(unit string) string {
	switch len(s) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s %s", number(s[0]), unit)
	}
	return fmt.Sprintf("%s %s (%s–%s)", number(s.Median()), unit, number(s.Quantile(0)), number(s.Quantile(0.75)))
}

// number prints three digits that matter.
func number(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}
