package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/brinebus/brine/test/port"
)

// command is a command of a script.
type command func(s *system, ts *testscript.TestScript, args []string) error

// commands are what the scripts have beside the commands of testscript itself;
// README.md says what each of them does.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	table := map[string]command{
		"accept":     accept,
		"account":    account,
		"alike":      alike,
		"asked":      asked,
		"capture":    capture,
		"cheap":      cheap,
		"ended":      ended,
		"fleet":      fleet,
		"mount":      mount,
		"nats":       natsServers,
		"newer":      newer,
		"older":      older,
		"pamservice": pamService,
		"outputs":    outputs,
		"run":        run,
		"served":     served,
		"setup":      setup,
		"signal":     signal,
		"spawn":      spawn,
		"speaks":     speaks,
		"start":      start,
		"startall":   startAll,
		"status":     status,
		"halt":       halt,
		"taken":      taken,
		"unixgroup":  unixGroup,
		"unixuser":   unixUser,
		"targets":    targets,
		"up":         up,
		"waitfile":   waitFile,
		"waitfor":    waitFor,
		"waitlog":    waitLog,
		"words":      words,
	}
	cmds := map[string]func(*testscript.TestScript, bool, []string){"log": grepLog, "mode": mode}
	for name, c := range table {
		cmds[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if neg {
				ts.Fatalf("unsupported: ! %s", name)
			}
			if err := c(ts.Value(systemKey{}).(*system), ts, args); err != nil {
				ts.Fatalf("%s: %v", name, err)
			}
		}
	}
	return cmds
}

var errUsage = errors.New("wrong use, see README.md")

// setup writes the configuration of a master, and of a minion for each id.
func setup(s *system, ts *testscript.TestScript, ids []string) error {
	s.ids = ids
	n, err := port.Reserve()
	if err != nil {
		return err
	}
	members, err := port.Reserve()
	if err != nil {
		return err
	}
	ts.Setenv("MEMBERS", strconv.Itoa(members))
	return s.configure(ts, n)
}

func (s *system) configure(ts *testscript.TestScript, port int) error {
	s.port = port
	ts.Setenv("PORT", strconv.Itoa(port))
	err := s.write("master", "master", fmt.Sprintf("interface: 127.0.0.1\nret_port: %d\n", port))
	for _, id := range s.ids {
		if n := strings.TrimPrefix(id, "master"); isMaster(id) {
			err = errors.Join(err, s.write(id, "master", fmt.Sprintf("interface: 127.0.0.%s\nret_port: %d\n", n, port)))
			continue
		}
		err = errors.Join(err, s.write(id, "minion", fmt.Sprintf("id: %s\nmaster: 127.0.0.1\nmaster_port: %d\n", id, port)))
	}
	return err
}

// isMaster tells the names of masters, such as master2, from those of minions.
func isMaster(name string) bool { return strings.HasPrefix(name, "master") }

// write writes one configuration with everything of the daemon in one folder.
func (s *system) write(dir, file, text string) error {
	dir = filepath.Join(s.work, dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text += "root_dir: " + dir + "\npki_dir: pki\ncachedir: cache\nsock_dir: run\npidfile: pid\nlog_file: log\nlog_level: info\n"
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
}

// invocation is a command line with the way in which it is to be run.
type invocation struct {
	args   []string
	exit   int
	user   string
	umask  string
	input  string
	within time.Duration
}

var option = regexp.MustCompile(`^(exit|user|umask|in|within)=(.*)$`)

func parseInvocation(args []string) (*invocation, error) {
	v := &invocation{within: runTime}
	for len(args) > 0 {
		m := option.FindStringSubmatch(args[0])
		if m == nil {
			break
		}
		var err error
		switch m[1] {
		case "exit":
			v.exit, err = strconv.Atoi(m[2])
		case "user":
			v.user = m[2]
		case "umask":
			v.umask = m[2]
		case "in":
			v.input = m[2]
		case "within":
			v.within, err = time.ParseDuration(m[2])
		}
		if err != nil {
			return nil, err
		}
		args = args[1:]
	}
	if v.args = args; len(args) == 0 {
		return nil, errUsage
	}
	return v, nil
}

// passed are the variables that a program of a script gets.
var passed = []string{"PATH", "HOME", "TMPDIR", "WORK", "GORACE", "GOTRACEBACK", "SALT_CONFIG_DIR", "NOTIFY_SOCKET", "SUDO_USER", "NODE_PATH", "COMPLETIONS"}

// cmd makes the process of an invocation.
func (v *invocation) cmd(ctx context.Context, ts *testscript.TestScript) (*exec.Cmd, error) {
	args := v.args
	if v.umask != "" {
		args = slices.Concat([]string{"sh", "-c", `umask "$0" && exec "$@"`, v.umask}, args)
	}
	program := args[0]
	if own := filepath.Join(bin, program); !strings.Contains(program, "/") {
		if _, err := os.Stat(own); err == nil {
			program = own
		}
	}
	c := exec.CommandContext(ctx, program, args[1:]...)
	c.Args[0] = args[0]
	c.Dir = ts.MkAbs(".")
	c.WaitDelay = time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, name := range passed {
		if value := ts.Getenv(name); value != "" {
			c.Env = append(c.Env, name+"="+value)
		}
	}
	if v.input != "" {
		c.Stdin = strings.NewReader(ts.ReadFile(v.input))
	}
	var err error
	if v.user != "" {
		c.SysProcAttr.Credential, err = credential(v.user)
	}
	return c, err
}

// run runs a command to its end and checks its exit code.
func run(_ *system, ts *testscript.TestScript, args []string) error {
	v, err := parseInvocation(args)
	if err != nil {
		return err
	}
	out, errs, err := v.run(ts)
	_, _ = ts.Stdout().Write(out) // a strings.Builder
	_, _ = ts.Stderr().Write(errs)
	return err
}

// alike runs a program with each of several words in place of {}, and wants the
// same output each time.
func alike(_ *system, ts *testscript.TestScript, args []string) error {
	at := slices.Index(args, ":")
	if at < 0 || len(args) < at+3 {
		return errUsage
	}
	var first string
	for i, word := range args[at+1:] {
		words := slices.Clone(args[:at])
		for j := range words {
			words[j] = strings.ReplaceAll(words[j], "{}", word)
		}
		v, err := parseInvocation(words)
		if err != nil {
			return err
		}
		out, errs, err := v.run(ts)
		if err != nil {
			return fmt.Errorf("with %q: %w", word, err)
		}
		said := fmt.Sprintf("[stdout]\n%s[stderr]\n%s", out, errs)
		if i == 0 {
			first = said
			_, _ = ts.Stdout().Write(out) // a strings.Builder
			_, _ = ts.Stderr().Write(errs)
		}
		if said != first {
			return fmt.Errorf("with %q:\n%s\nand with %q:\n%s", args[at+1], first, word, said)
		}
	}
	return nil
}

// run runs the program to its end; an error is told with what it printed.
func (v *invocation) run(ts *testscript.TestScript) (stdout, stderr []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), v.within)
	defer cancel()
	c, err := v.cmd(ctx, ts)
	if err != nil {
		return nil, nil, err
	}
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err = c.Run()
	return out.Bytes(), errs.Bytes(), v.judge(ctx, c, err, &out, &errs)
}

func (v *invocation) judge(ctx context.Context, c *exec.Cmd, err error, out, errs *bytes.Buffer) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s did not end within %s\n[stdout]\n%s[stderr]\n%s", v.args[0], v.within, out, errs)
	case c.ProcessState == nil:
		return err
	case accident.Match(errs.Bytes()):
		return fmt.Errorf("%s has had an accident:\n%s", v.args[0], errs)
	case code(c.ProcessState) != v.exit:
		return fmt.Errorf("exit code %d, want %d\n[stdout]\n%s[stderr]\n%s", code(c.ProcessState), v.exit, out, errs)
	}
	return nil
}

// spawn starts a command in the background.
func spawn(s *system, ts *testscript.TestScript, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	v, err := parseInvocation(args[1:])
	if err != nil {
		return err
	}
	c, err := v.cmd(context.Background(), ts)
	if err != nil {
		return err
	}
	_, err = s.launch(args[0], c)
	return err
}

// start starts daemons and waits until each says that it is ready. Words that
// begin with a dash are options for them.
func start(s *system, ts *testscript.TestScript, args []string) error {
	options := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return !strings.HasPrefix(a, "-") })
	for _, name := range slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") }) {
		if p := s.find(name); p != nil && p.running() {
			return fmt.Errorf("%s is running", name)
		}
		if err := s.startOne(ts, name, options); err != nil {
			return err
		}
	}
	return nil
}

// startAll starts daemons that wait for each other, such as the members of a cluster, and waits
// for all of them.
func startAll(s *system, ts *testscript.TestScript, args []string) error {
	var all []*process
	for _, name := range args {
		p, err := s.begin(ts, name, nil)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	for _, p := range all {
		if err := p.notices.awaitReady(p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// daemon is the program of a daemon with this name.
func daemon(name string) string {
	if isMaster(name) {
		return "salt-master"
	}
	return "salt-minion"
}

// begin starts one daemon, and does not wait for it.
func (s *system) begin(ts *testscript.TestScript, name string, options []string) (*process, error) {
	program := daemon(name)
	if other := s.programs[name]; other != "" {
		program = other
	}
	n, err := listenNotices()
	if err != nil {
		return nil, err
	}
	v := &invocation{args: slices.Concat([]string{program, "-c", filepath.Join(s.work, name)}, options)}
	c, err := v.cmd(context.Background(), ts)
	if err != nil {
		n.conn.Close()
		return nil, err
	}
	c.Env = append(c.Env, "NOTIFY_SOCKET="+n.name)
	p, err := s.launch(name, c)
	if err != nil {
		n.conn.Close()
		return nil, err
	}
	p.notices = n
	go n.read(p)
	return p, nil
}

// startOne starts one daemon. Should somebody else have got the master's port
// before it, there is another one.
func (s *system) startOne(ts *testscript.TestScript, name string, options []string) error {
	for range 3 {
		p, err := s.begin(ts, name, options)
		if err != nil {
			return err
		}
		if err = p.notices.awaitReady(p); err == nil || !s.portLost(p) {
			return err
		}
		p.seen = true
		again, err := port.Reserve()
		if err != nil {
			return err
		}
		if err := s.configure(ts, again); err != nil {
			return err
		}
	}
	return errors.New("three free ports were taken by others")
}

// portLost says whether a master could not start since its port is taken, before
// any minion was told of it.
func (s *system) portLost(p *process) bool {
	return p.name == "master" && !p.running() && len(s.started) == 1 && strings.Contains(tail(p.stderr), syscall.EADDRINUSE.Error())
}

// up is the usual system: a master and its minions, all accepted.
func up(s *system, ts *testscript.TestScript, ids []string) error {
	if err := setup(s, ts, ids); err != nil {
		return err
	}
	if err := start(s, ts, append([]string{"master"}, ids...)); err != nil {
		return err
	}
	return accept(s, ts, ids)
}

// accept accepts the keys of minions and waits until they take jobs.
func accept(s *system, ts *testscript.TestScript, ids []string) error {
	for _, id := range ids {
		if err := waitFor(s, ts, []string{`(?m)^` + id + `$`, "salt-key", "-l", "all"}); err != nil {
			return err
		}
	}
	if err := run(s, ts, []string{"salt-key", "-q", "-y", "-a", strings.Join(ids, ",")}); err != nil {
		return err
	}
	for _, id := range ids {
		if err := waitLog(s, ts, []string{id, "Minion is ready to receive requests!"}); err != nil {
			return err
		}
	}
	return nil
}

// process finds a process by the name that the script gave it.
func (s *system) process(name string) (*process, error) {
	if p := s.find(name); p != nil {
		return p, nil
	}
	names := map[string]bool{}
	for _, p := range s.started {
		names[p.name] = true
	}
	return nil, fmt.Errorf("nothing was started as %q; there are %v", name, slices.Sorted(maps.Keys(names)))
}

var signals = map[string]syscall.Signal{
	"CONT": syscall.SIGCONT, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "TERM": syscall.SIGTERM,
	"USR1": syscall.SIGUSR1,
}

// signal sends a signal to a process that runs. After KILL it has ended.
func signal(s *system, _ *testscript.TestScript, args []string) error {
	if len(args) != 2 || signals[args[0]] == 0 {
		return errUsage
	}
	p, err := s.process(args[1])
	if err != nil {
		return err
	}
	if !p.running() {
		return fmt.Errorf("%s has ended already:\n%s", p.name, tail(p.stderr))
	}
	if err := p.cmd.Process.Signal(signals[args[0]]); err != nil {
		return err
	}
	if args[0] == "KILL" {
		p.seen = true
		<-p.ended
	}
	return nil
}

// ended waits for the end of a process and checks its exit code.
func ended(s *system, ts *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	want, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	p, err := s.process(args[0])
	if err != nil {
		return err
	}
	if !p.awaitEnd(waitTime) {
		return fmt.Errorf("%s did not end within %s:\n%s", p.name, waitTime, tail(p.stderr))
	}
	p.seen = true
	out, err := os.ReadFile(p.stdout)
	if err != nil {
		return err
	}
	errs, err := os.ReadFile(p.stderr)
	if err != nil {
		return err
	}
	_, _ = ts.Stdout().Write(out) // a strings.Builder
	_, _ = ts.Stderr().Write(errs)
	if got := code(p.cmd.ProcessState); got != want {
		return fmt.Errorf("%s: exit code %d, want %d\n[stdout]\n%s[stderr]\n%s", p.name, got, want, out, errs)
	}
	return nil
}

// halt ends daemons as a service manager does.
func halt(s *system, ts *testscript.TestScript, names []string) error {
	for _, name := range names {
		if err := signal(s, ts, []string{"TERM", name}); err != nil {
			return err
		}
		if err := ended(s, ts, []string{name, "0"}); err != nil {
			return err
		}
	}
	return nil
}

// poll calls f until it is true, less and less often: it may start a program, and what it waits for needs the
// processor, too.
func poll(f func() bool) bool {
	pause := pollTime
	for end := time.Now().Add(waitTime); !f(); pause = min(pause*5/4, slowPollTime) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// waitFor runs a command again and again until its standard output matches.
func waitFor(_ *system, ts *testscript.TestScript, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	want, err := regexp.Compile("(?m)" + args[0])
	if err != nil {
		return err
	}
	v, err := parseInvocation(args[1:])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitTime+time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	ok := poll(func() bool {
		c, cErr := v.cmd(ctx, ts)
		if cErr != nil {
			err = cErr
			return true
		}
		out.Reset()
		errs.Reset()
		c.Stdout, c.Stderr = &out, &errs
		_ = c.Run() // only what it prints counts
		return want.Match(out.Bytes())
	})
	if !ok {
		return fmt.Errorf("no %q within %s\n[stdout]\n%s[stderr]\n%s", args[0], waitTime, &out, &errs)
	}
	_, _ = ts.Stdout().Write(out.Bytes())
	_, _ = ts.Stderr().Write(errs.Bytes())
	return err
}

// waitFile waits until all the files are there.
func waitFile(_ *system, ts *testscript.TestScript, names []string) error {
	for _, name := range names {
		if !poll(func() bool { _, err := os.Stat(ts.MkAbs(name)); return err == nil }) {
			return fmt.Errorf("there is no %s after %s", name, waitTime)
		}
	}
	return nil
}

// waitLog waits until what a process has printed since its start matches. That
// it ends without is an error at once.
func waitLog(s *system, _ *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	want, err := regexp.Compile("(?m)" + args[1])
	if err != nil {
		return err
	}
	p, err := s.process(args[0])
	if err != nil {
		return err
	}
	found := false
	poll(func() bool {
		over := !p.running() // before the look, which then sees all
		found = want.MatchString(p.printed())
		return found || over
	})
	if !found {
		return fmt.Errorf("%s has not said %q:\n%s", args[0], args[1], p.printed())
	}
	return nil
}

// printed is all that a process has printed.
func (p *process) printed() string {
	out, _ := os.ReadFile(p.stdout)
	errs, _ := os.ReadFile(p.stderr)
	return string(out) + string(errs)
}

// grepLog looks for something in what a process has printed since its start.
func grepLog(ts *testscript.TestScript, neg bool, args []string) {
	count := -1
	if len(args) == 3 {
		text, ok := strings.CutPrefix(args[1], "-count=")
		n, err := strconv.Atoi(text)
		if !ok || err != nil || neg {
			ts.Fatalf("log: %v", errUsage)
		}
		count, args = n, []string{args[0], args[2]}
	}
	if len(args) != 2 {
		ts.Fatalf("log: %v", errUsage)
	}
	p, err := ts.Value(systemKey{}).(*system).process(args[0])
	ts.Check(err)
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	text := p.printed()
	switch n := len(want.FindAllStringIndex(text, -1)); {
	case neg && n > 0:
		ts.Fatalf("log: %s has said %q:\n%s", p.name, args[1], text)
	case count >= 0 && n != count:
		ts.Fatalf("log: %s has said %q %d times, want %d:\n%s", p.name, args[1], n, count, text)
	case !neg && count < 0 && n == 0:
		ts.Fatalf("log: %s has not said %q:\n%s", p.name, args[1], text)
	}
}

// mode checks the permission bits of files, in octal.
func mode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("mode: %v", errUsage)
	}
	want, err := strconv.ParseUint(args[0], 8, 32)
	ts.Check(err)
	for _, name := range args[1:] {
		info, err := os.Lstat(ts.MkAbs(name))
		ts.Check(err)
		if got := info.Mode().Perm(); got != os.FileMode(want) {
			ts.Fatalf("mode: %s has %04o, want %04o", name, got, want)
		}
	}
}

// capture sets a variable to what a pattern, or the first group in it, matches.
func capture(_ *system, ts *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	re, err := regexp.Compile("(?m)" + args[2])
	if err != nil {
		return err
	}
	m := re.FindStringSubmatch(ts.ReadFile(args[1]))
	if m == nil {
		return fmt.Errorf("no match of %q in %s", args[2], args[1])
	}
	ts.Setenv(args[0], m[min(1, len(m)-1)])
	return nil
}

// taken listens on a port of the loopback until the script ends.
func taken(_ *system, ts *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+args[0])
	if err != nil {
		return err
	}
	ts.Defer(func() { l.Close() })
	return nil
}

// mount makes a directory a disk of its own, of a size such as 1m.
func mount(s *system, ts *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	dir := ts.MkAbs(args[0])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755,size="+args[1]); err != nil {
		return err
	}
	s.mounts = append(s.mounts, dir)
	return nil
}
