package documented

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Answer is one answer of Brine beside that of Salt to the same question.
type Answer int

// The answers. What is neither refused by one of the two alone nor the same is Different, and so
// is a case that does not apply here.
const (
	Equal Answer = iota
	Stricter
	Laxer
	Different
)

// Verdict is the answer where both only take something or refuse it.
func Verdict(brine, salt bool) Answer {
	switch {
	case brine == salt:
		return Equal
	case salt:
		return Stricter
	}
	return Laxer
}

// Refusal is the answer where what is taken has a result as well.
func Refusal(same, brine, salt bool) Answer {
	if same {
		return Equal
	}
	if a := Verdict(brine, salt); a != Equal {
		return a
	}
	return Different
}

// Comparison counts the answers to the cases of one test.
type Comparison [Different + 1]int

// Count counts one.
func (c *Comparison) Count(a Answer) { c[a]++ }

// cases are how many were counted.
func (c Comparison) cases() int { return c[Equal] + c[Stricter] + c[Laxer] + c[Different] }

// row is the comparison as a row of the table in doc/differences.md.
func (c Comparison) row(about string) string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d |", about, c.cases(), c[Equal], c[Stricter], c[Laxer], c[Different])
}

// Stands fails the test if the table in doc/differences.md has another row about these cases.
func (c Comparison) Stands(t testing.TB, about string) {
	t.Helper()
	text, err := os.ReadFile(document(t))
	if err != nil {
		t.Fatal(err)
	}
	if want := c.row(about); !strings.Contains(string(text), "\n"+want+"\n") {
		t.Errorf("the table in doc/differences.md has no row as counted: %s", want)
	}
}

// total is the last row of that table.
const total = "**all**"

var countedRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$`)

// table are the rows of the table in a text, without the last one, and their sum.
func table(text string) (rows map[string]Comparison, sum Comparison) {
	rows = map[string]Comparison{}
	for _, m := range countedRow.FindAllStringSubmatch(text, -1) {
		if m[1] == total {
			continue
		}
		var c Comparison
		for i := range c {
			c[i], _ = strconv.Atoi(m[i+3])
			sum[i] += c[i]
		}
		rows[m[1]] = c
	}
	return rows, sum
}
