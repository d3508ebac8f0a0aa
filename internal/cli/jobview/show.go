package jobview

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/output"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Show prints the progress of a job: returns to standard output, everything else to standard
// error.
type Show struct {
	env     *cli.Env
	log     *logging.Log
	file    io.WriteCloser
	out     *output.Writer
	toFile  bool // results go to a file of --out-file
	form    string
	verbose bool
	showJID bool
	summary bool
	hide    bool // hide minions that did not return
	doc     bool
	runner  string // the salt-run command line with which the same user finds the job
	shown   bool   // with -d: one documentation was shown, which is enough
	bar     *bar   // nil for none
	stream  stream

	mu       sync.Mutex // guards what waitingFor reads
	waits    string     // what the job waits for, as far as known
	start    job.Start
	open     map[salt.MinionID]bool
	returned int
	last     map[salt.MinionID]job.Report // without the returned data
}

// runner is the command line with which the user who started the job finds it again: an eauth
// login is another user than the one who types it.
func runner(opts *urcli.Context) string {
	words := []string{"salt-run"}
	switch backend, user := opts.String("auth"), opts.String("username"); {
	case backend != "" && user != "":
		words = append(words, "-a", backend, "--username", user)
	case backend != "":
		words = append(words, "-a", backend)
	case opts.Bool("make-token"):
		words = append(words, "-T")
	}
	return strings.Join(words, " ")
}

// New prepares to show a job with these options.
func New(env *cli.Env, opts *urcli.Context, cfg *config.Master) (*Show, error) {
	s := &Show{
		env: env, toFile: opts.String("out-file") != "", verbose: opts.Bool("verbose"), showJID: opts.Bool("show-jid") || cfg.ShowJID,
		summary: opts.Bool("summary") || cfg.CLISummary, hide: opts.Bool("hide-timeout"), doc: opts.Bool("doc"),
		runner: runner(opts), open: map[salt.MinionID]bool{}, last: map[salt.MinionID]job.Report{},
	}
	if opts.Bool("progress") && env.StderrTTY {
		s.bar = &bar{out: env.Stderr}
	}
	var err error
	if s.log, err = env.OpenLog(opts, cli.LogSettings{Format: cfg.LogFormat}); err != nil {
		return nil, err
	}
	results, err := env.OpenResults(opts, cfg.Output, cfg.OutputIndent)
	if err != nil {
		return nil, err
	}
	s.file, s.out, s.form = results.File, results.Writer, results.Form
	s.stream = stream{people: output.FormOf(s.form).People, terminal: results.Options.Terminal, begun: map[salt.MinionID]bool{}, whole: map[salt.MinionID]bool{}, out: s.file, err: env.Stderr}
	return s, nil
}

// begin takes the list of minions that are expected.
func (s *Show) begin(start job.Start) {
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
	s.bar.begin(len(s.open))
}

func (s *Show) preview(start job.Start) error {
	ids := []any{}
	for _, id := range start.Minions {
		ids = append(ids, string(id))
	}
	if len(ids) == 0 {
		return cli.Fail(cli.NoMatch, errors.New("No minions matched the target."))
	}
	return errors.Join(s.out.Whole(ids, ""), s.out.Close())
}

func (s *Show) async(start job.Start) error {
	if output.FormOf(s.form).Document {
		return errors.Join(s.out.Whole(map[string]any{"jid": string(start.JID)}, ""), s.out.Close())
	}
	_, err := fmt.Fprintf(s.file, "Executed command with job ID: %s\n", start.JID)
	return err
}

// update shows one message of the master.
func (s *Show) update(b []byte) error {
	u, err := job.ReadUpdateExact(b)
	if err != nil {
		return fmt.Errorf("unreadable message of the master: %w", err)
	}
	switch {
	case len(u.Begun) > 0:
		s.batch(u.Begun)
		return nil
	case len(u.Output) > 0 || u.OutputEnd:
		s.bar.hide()
		defer s.bar.draw()
		return s.stream.write(u)
	}
	s.note(u)
	s.bar.hide()
	defer s.bar.draw()
	switch {
	case u.State == job.NotTargeted:
	case u.State.Returned():
		return s.ret(u)
	case u.State == job.Queued, u.State.Final():
		return s.miss(u)
	case u.State == job.Disconnected:
		fmt.Fprintf(s.env.Stderr, "%s: %s: %s; waiting for it to come back\n", s.env.Name, u.ID, u.Text)
	case s.verbose:
		fmt.Fprintf(s.env.Stderr, "%s: %s: %s\n", s.env.Name, u.ID, states(u.Report))
	}
	return nil
}

// note records the state of the job on a minion.
func (s *Show) note(u job.Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.State.Final() || u.State == job.Queued {
		if s.open[u.ID] {
			s.bar.step()
		}
		delete(s.open, u.ID)
	}
	if u.State.Returned() {
		s.returned++
	}
	s.last[u.ID] = job.Report{State: u.State, Text: u.Text}
	s.log.Debug("job state", logging.KeyJID, s.start.JID, logging.KeyMinion, u.ID, "state", u.State)
}

// batch prints which minions begin, in Salt's words.
func (s *Show) batch(ids []salt.MinionID) {
	list := make([]any, 0, len(ids))
	for _, id := range slices.Sorted(slices.Values(ids)) {
		list = append(list, string(id))
	}
	if !s.env.Talks() {
		return
	}
	s.bar.hide()
	defer s.bar.draw()
	fmt.Fprintf(s.env.Stderr, "\nExecuting run on %s\n\n", value.Repr(list))
}

func (s *Show) ret(u job.Update) error {
	if u.State == job.Killed {
		fmt.Fprintf(s.env.Stderr, "%s: %s: the job was %s\n", s.env.Name, u.ID, u.Text)
	}
	if s.doc {
		return s.document(u)
	}
	if _, text := u.Return.V.(string); text && s.stream.whole[u.ID] {
		return nil // all of it was shown already
	}
	return s.out.Return(output.Return{ID: string(u.ID), Value: u.Return.V, Hint: u.Out, Failed: u.State != job.Done})
}

// document shows the documentation of the first minion that has any.
func (s *Show) document(u job.Update) error {
	docs, ok := value.Sorted(u.Return.V)
	if s.shown || !ok || len(docs) == 0 {
		return nil
	}
	s.shown = true
	if !output.FormOf(s.form).People {
		return s.out.Whole(docs, "")
	}
	for _, e := range docs {
		if _, err := fmt.Fprintf(s.file, "%v:\n\n    %s\n\n", e.Key, strings.ReplaceAll(strings.TrimSpace(fmt.Sprint(e.V)), "\n", "\n    ")); err != nil {
			return err
		}
	}
	return nil
}

// Missed is Salt's text for a minion that did not return.
func Missed(state job.State, why string) string {
	reason := string(state)
	switch state {
	case job.Silent:
		reason = "No response"
	case job.NotConnected:
		reason = "Not connected"
	}
	text := "Minion did not return. [" + reason + "]"
	if why != "" {
		text += " " + why
	}
	return text
}

// miss shows a minion that did not return. In output for programs it is an object with the key
// error; for people it is Salt's text.
func (s *Show) miss(u job.Update) error {
	if s.hide {
		return nil
	}
	text := Missed(u.State, u.Text)
	if output.FormOf(s.form).Structured {
		return s.out.Return(output.Return{ID: string(u.ID), Value: map[string]any{"error": text}, Failed: true})
	}
	return s.out.Return(output.Return{ID: string(u.ID), Value: text, Failed: true})
}

// Waits says what the job waits for: for its start within waitingFor, later at once. It must not be called while
// something is printed.
func (s *Show) Waits(what string) {
	s.mu.Lock()
	s.waits = what
	runs := s.start.JID != ""
	s.mu.Unlock()
	if runs {
		s.bar.hide()
		s.env.Waits(what)
		s.bar.draw()
	}
}

// waitingFor names the minions that are missing.
func (s *Show) waitingFor() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.start.JID == "" {
		return cmp.Or(s.waits, "the master to start the job")
	}
	return fmt.Sprintf("%d of %d minions (job %s): %s", len(s.open), s.targeted(), s.start.JID, few(slices.Collect(maps.Keys(s.open)), 5))
}

// few lists at most most ids, sorted, and says how many more there are.
func few(ids []salt.MinionID, most int) string {
	slices.Sort(ids)
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

func (s *Show) targeted() int { return len(s.start.Minions) + len(s.start.Missing) }

// interrupted prints how to find the job again.
func (s *Show) interrupted() {
	if s.start.JID == "" {
		return
	}
	s.bar.hide()
	fmt.Fprintf(s.env.Stderr, "\nExiting gracefully on Ctrl-c\nThis job's jid is: %[1]s\n"+
		"The minions may not have all finished running and any remaining minions will return upon completion. "+
		"To look up the return data for this job later, run the following command:\n\n%[2]s jobs.lookup_jid %[1]s\n\n"+
		"To go on watching it:\n\n%[2]s jobs.follow %[1]s\n", s.start.JID, s.runner)
}

// close ends the output.
func (s *Show) close() error {
	s.bar.hide()
	if s.doc {
		return nil
	}
	err := s.out.Close()
	if s.summary {
		s.sum()
	}
	return err
}

// in returns the minions in states for which is returns true.
func (s *Show) in(is func(job.State) bool) []salt.MinionID {
	var ids []salt.MinionID
	for id, r := range s.last {
		if is(r.State) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// The states that the exit code tells apart.
func failed(s job.State) bool {
	return s == job.Failed || s == job.Killed || s == job.Refused || s == job.Expired
}

func skipped(s job.State) bool   { return s == job.NotTargeted }
func cancelled(s job.State) bool { return s == job.Cancelled }

// missing reports whether a return may still come.
func missing(s job.State) bool {
	return !s.Returned() && !failed(s) && !skipped(s) && !cancelled(s)
}

func states(r job.Report) string {
	if r.Text == "" {
		return string(r.State)
	}
	return string(r.State) + ": " + r.Text
}

// sum prints Salt's summary, and below it every minion that did not simply succeed.
func (s *Show) sum() {
	line := strings.Repeat("-", 43)
	fmt.Fprintf(s.env.Stderr, "\n\n%s\nSummary\n%s\n# of minions targeted: %d\n# of minions returned: %d\n# of minions that did not return: %d\n# of minions with errors: %d\n",
		line, line, s.targeted()-len(s.in(skipped)), s.returned, len(s.in(missing))+len(s.in(cancelled)), len(s.in(failed)))
	for _, id := range s.in(func(state job.State) bool { return state != job.Done }) {
		fmt.Fprintf(s.env.Stderr, "  %s: %s\n", id, states(s.last[id]))
	}
	fmt.Fprintln(s.env.Stderr, line)
}

// verdict returns the exit code, with an error that explains it.
func (s *Show) verdict() error {
	switch away, off := s.in(missing), s.in(cancelled); {
	case len(off) > 0:
		return cli.Fail(cli.Failed, salt.WithHint(fmt.Errorf("%d of %d minions were not begun: %s: %s", len(off), s.targeted(), s.last[off[0]].Text, few(off, 10)),
			s.runner+" jobs.list_job "+string(s.start.JID)+" shows what became of the others"))
	case len(away) > 0:
		return cli.Fail(cli.NoReturn, salt.WithHint(fmt.Errorf("%d of %d minions did not return: %s", len(away), s.targeted(), few(away, 10)),
			s.runner+" jobs.lookup_jid "+string(s.start.JID)+" shows what comes later"))
	case len(s.in(failed)) > 0:
		fmt.Fprintln(s.env.Stderr, "ERROR: Minions returned with non-zero exit code")
		return cli.Exit(cli.Failed)
	case len(s.in(skipped)) == s.targeted():
		return cli.Fail(cli.NoMatch, errors.New("No minions matched the target: it matches none of them by their current grains."))
	}
	return nil
}
