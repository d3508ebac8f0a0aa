// Package template renders templates with the program salt-template: a process that is killed if it
// takes too long or too much memory, so that no template blocks or fills a daemon.
//
// It knows no syntax; package jinja does, which only that program links.
package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Program is the name of the program.
const Program = "salt-template"

// Limits of one template. No configuration file has a megabyte of text; values have a limit since
// they are copied.
const (
	MaxText   = 1 << 20
	MaxOutput = 16 << 20
	MaxValues = 64 << 20
	maxTime   = 10 * time.Second
)

// Order is the input of the program, as JSON on its standard input. The program writes the text to
// standard output, or a Mistake as JSON to standard error, with exit code 1.
type Order struct {
	Text   string      `json:"text"`
	Values value.Value `json:"values"` // the names that the template sees
}

// Mistake is an error in a template. It contains no values.
type Mistake struct {
	Line int    `json:"line"` // from 1; 0 if unknown
	Text string `json:"text"`
}

// Error implements error.
func (m *Mistake) Error() string {
	if m.Line > 0 {
		return "template: line " + strconv.Itoa(m.Line) + ": " + m.Text
	}
	return "template: " + m.Text
}

// AtLine returns the line and the error there.
func (m *Mistake) AtLine() (line int, text string) { return m.Line, m.Text }

var errLimit = &Mistake{Text: fmt.Sprintf("it takes more time, memory or depth than a template may have, or makes more than %d MiB", MaxOutput>>20)}

// Renderer is the path of the program.
type Renderer string

// Beside returns the renderer that was installed with this program.
func Beside() Renderer { return Renderer(process.Beside(Program)) }

// Render returns the output of a template for the values; an error in the template is a *Mistake.
func (r Renderer) Render(ctx context.Context, text string, values map[string]any) (string, error) {
	if len(text) > MaxText {
		return "", &Mistake{Text: fmt.Sprintf("it is longer than %d bytes", MaxText)}
	}
	input, err := value.Encode(map[string]any{"text": text, "values": values})
	if err != nil {
		return "", err
	}
	if len(input) > MaxText+MaxValues {
		return "", &Mistake{Text: fmt.Sprintf("its values are larger than %d bytes", MaxValues)}
	}
	if _, err := exec.LookPath(string(r)); err != nil {
		return "", salt.WithHint(fmt.Errorf("the program that renders templates is not there: %w", err), "install "+Program+" beside the daemon")
	}
	in := string(input)
	p := process.Program{Args: []string{string(r)}, Dir: "/", Env: []string{}, Stdin: &in, Timeout: maxTime, Limit: MaxOutput + 1}
	end, err := p.Run(ctx)
	if err != nil {
		return "", fmt.Errorf("run %s: %w", Program, err)
	}
	return answer(end)
}

// crashed is the exit code of a Go program after a stack overflow.
const crashed = 2

// answer reads how the program ended. If it was killed or crashed, it exceeded its limits.
func answer(end process.Ending) (string, error) {
	if end.Code == 0 && !end.TimedOut {
		return end.Stdout, nil
	}
	m := &Mistake{}
	if end.Code == 1 && json.Unmarshal([]byte(strings.TrimSpace(end.Stderr)), m) == nil && m.Text != "" {
		return "", m
	}
	if end.TimedOut || end.Code == crashed || end.Code < 0 {
		return "", errLimit
	}
	return "", errors.Join(errors.New("the template was not rendered"), end.Failure(Program))
}

// Values returns the names that a template of a minion can use.
func Values(id salt.MinionID, grains, pillar map[string]any) map[string]any {
	return map[string]any{"grains": orEmpty(grains), "pillar": orEmpty(pillar), "opts": map[string]any{"id": string(id)}}
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}
