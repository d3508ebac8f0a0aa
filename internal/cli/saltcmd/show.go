package saltcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	urcli "github.com/urfave/cli/v2"

	"brine/internal/cli"
	"brine/internal/config"
	"brine/internal/job"
	"brine/internal/output"
	"brine/internal/salt"
)

// show prints the course of a job: returns to standard output, all else to
// standard error.
type show struct {
	env     *cli.Env
	file    io.WriteCloser
	out     *output.Writer
	form    string
	verbose bool
	showJID bool
	summary bool
	hide    bool // minions that did not return
	doc     bool
	shown   bool // of -d: one documentation is enough

	mu       sync.Mutex // guards what waitingFor reads
	start    job.Start
	open     map[salt.MinionID]bool
	returned int
	failed   []salt.MinionID
	missing  []job.Update
	skipped  int
}

func newShow(env *cli.Env, opts *urcli.Context, cfg *config.Master) (*show, error) {
	form, o := env.OutputForm(opts, cfg.Output)
	s := &show{
		env: env, form: form, verbose: opts.Bool("verbose"), showJID: opts.Bool("show-jid") || cfg.ShowJID,
		summary: opts.Bool("summary") || cfg.CLISummary, hide: opts.Bool("hide-timeout"), doc: opts.Bool("doc"), open: map[salt.MinionID]bool{},
	}
	var err error
	if s.file, err = env.OpenOutput(opts); err != nil {
		return nil, err
	}
	if s.out, err = output.NewWriter(s.file, form, o); err != nil {
		return nil, cli.Fail(cli.Usage, err)
	}
	return s, nil
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) }

// begin notes what is expected.
func (s *show) begin(start job.Start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start = start
	for _, id := range slices.Concat(start.Minions, start.Missing) {
		s.open[id] = true
	}
	if s.verbose {
		fmt.Fprintf(s.env.Stderr, "Executing job with jid %s\n-------------------------------------------\n\n", start.JID)
	} else if s.showJID {
		fmt.Fprintf(s.env.Stderr, "jid: %s\n", start.JID)
	}
}

func (s *show) preview(start job.Start) error {
	ids := []any{}
	for _, id := range start.Minions {
		ids = append(ids, string(id))
	}
	if len(ids) == 0 {
		return cli.Fail(cli.NoMatch, errors.New("No minions matched the target."))
	}
	return errors.Join(s.out.Whole(ids, ""), s.out.Close())
}

func (s *show) async(start job.Start) error {
	if s.form == "json" || s.form == "jsonl" || s.form == "yaml" {
		return errors.Join(s.out.Whole(map[string]any{"jid": string(start.JID)}, ""), s.out.Close())
	}
	_, err := fmt.Fprintf(s.file, "Executed command with job ID: %s\n", start.JID)
	return err
}

// update shows one word of the master.
func (s *show) update(b []byte) error {
	var u job.Update
	if err := json.Unmarshal(b, &u); err != nil {
		return fmt.Errorf("unreadable word of the master: %w", err)
	}
	if u.State.Final() {
		s.mu.Lock()
		delete(s.open, u.ID)
		s.mu.Unlock()
	}
	switch {
	case u.State == job.NotTargeted:
		s.skipped++
		return nil
	case u.State.Returned():
		return s.ret(u)
	case u.State.Final():
		return s.miss(u)
	case u.State == job.Disconnected:
		fmt.Fprintf(s.env.Stderr, "%s: %s: %s; waiting for it to come back\n", s.env.Name, u.ID, u.Text)
	case s.verbose:
		fmt.Fprintf(s.env.Stderr, "%s: %s: %s\n", s.env.Name, u.ID, u.State)
	}
	return nil
}

func (s *show) ret(u job.Update) error {
	s.returned++
	s.missing = slices.DeleteFunc(s.missing, func(m job.Update) bool { return m.ID == u.ID })
	if u.State != job.Done {
		s.failed = append(s.failed, u.ID)
	}
	if u.State == job.Killed {
		fmt.Fprintf(s.env.Stderr, "%s: %s: the job was %s\n", s.env.Name, u.ID, u.Text)
	}
	if s.doc {
		return s.document(u)
	}
	return s.out.Return(output.Return{ID: string(u.ID), Value: u.Return.V, Hint: u.Out, Failed: u.State != job.Done})
}

// document shows the documentation of the first minion that has some.
func (s *show) document(u job.Update) error {
	docs, ok := u.Return.V.(map[string]any)
	if s.shown || !ok || len(docs) == 0 {
		return nil
	}
	s.shown = true
	if s.form != "" && s.form != "nested" {
		return s.out.Whole(docs, "")
	}
	names := make([]string, 0, len(docs))
	for name := range docs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if _, err := fmt.Fprintf(s.file, "%s:\n\n    %s\n\n", name, strings.ReplaceAll(strings.TrimSpace(fmt.Sprint(docs[name])), "\n", "\n    ")); err != nil {
			return err
		}
	}
	return nil
}

// miss shows a minion that did not return. In a document for programs it is an
// object with the key error; for people it is Salt's sentence.
func (s *show) miss(u job.Update) error {
	if u.State == job.Refused || u.State == job.Expired {
		s.failed = append(s.failed, u.ID)
	} else {
		s.missing = append(s.missing, u)
	}
	if s.hide {
		return nil
	}
	reason := string(u.State)
	switch u.State {
	case job.Silent:
		reason = "No response"
	case job.NotConnected:
		reason = "Not connected"
	}
	text := "Minion did not return. [" + reason + "]"
	if u.Text != "" {
		text += " " + u.Text
	}
	switch s.form {
	case "json", "jsonl", "yaml", "raw", "pprint":
		return s.out.Return(output.Return{ID: string(u.ID), Value: map[string]any{"error": text}, Failed: true})
	}
	return s.out.Return(output.Return{ID: string(u.ID), Value: text, Failed: true})
}

// waitingFor names what is not there yet.
func (s *show) waitingFor() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.start.JID == "" {
		return "the master to start the job"
	}
	ids := make([]string, 0, len(s.open))
	for id := range s.open {
		ids = append(ids, string(id))
	}
	slices.Sort(ids)
	if more := len(ids) - 5; more > 0 {
		ids = append(ids[:5], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d of %d minions (job %s): %s", len(s.open), len(s.start.Minions)+len(s.start.Missing), s.start.JID, strings.Join(ids, ", "))
}

// interrupted tells how to come back to the job.
func (s *show) interrupted() {
	if s.start.JID == "" {
		return
	}
	fmt.Fprintf(s.env.Stderr, "\nExiting gracefully on Ctrl-c\nThis job's jid is: %[1]s\n"+
		"The minions may not have all finished running and any remaining minions will return upon completion. "+
		"To look up the return data for this job later, run the following command:\n\nsalt-run jobs.lookup_jid %[1]s\n", s.start.JID)
}

// close ends the output.
func (s *show) close() error {
	if s.doc {
		return nil
	}
	err := s.out.Close()
	if s.summary {
		s.sum()
	}
	return err
}

func (s *show) sum() {
	line := strings.Repeat("-", 43)
	fmt.Fprintf(s.env.Stderr, "\n\n%s\nSummary\n%s\n# of minions targeted: %d\n# of minions returned: %d\n# of minions that did not return: %d\n# of minions with errors: %d\n",
		line, line, len(s.start.Minions)+len(s.start.Missing)-s.skipped, s.returned, len(s.missing), len(s.failed))
	for _, m := range s.missing {
		fmt.Fprintf(s.env.Stderr, "  %s: %s: %s\n", m.ID, m.State, m.Text)
	}
	fmt.Fprintln(s.env.Stderr, line)
}

// verdict is the exit code, with a line that explains it.
func (s *show) verdict() error {
	targeted := len(s.start.Minions) + len(s.start.Missing)
	switch {
	case len(s.missing) > 0:
		names := make([]string, len(s.missing))
		for i, m := range s.missing {
			names[i] = string(m.ID)
		}
		slices.Sort(names)
		if more := len(names) - 10; more > 0 {
			names = append(names[:10], fmt.Sprintf("and %d more", more))
		}
		return cli.Fail(cli.NoReturn, salt.WithHint(fmt.Errorf("%d of %d minions did not return: %s", len(s.missing), targeted, strings.Join(names, ", ")),
			"salt-run jobs.lookup_jid "+string(s.start.JID)+" shows what comes later"))
	case len(s.failed) > 0:
		fmt.Fprintln(s.env.Stderr, "ERROR: Minions returned with non-zero exit code")
		return cli.Exit(cli.Failed)
	case s.skipped == targeted:
		return cli.Fail(cli.NoMatch, errors.New("No minions matched the target: by their live facts it means none of them."))
	}
	return nil
}
