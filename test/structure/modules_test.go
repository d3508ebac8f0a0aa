package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The NATS server, which only the daemons may link.
const natsServer = "github.com/nats-io/nats-server/v2"

// foreign says which of our packages may import a module of others. A module is
// easily kept, or replaced, while few places know it.
var foreign = []struct {
	module string
	in     string // packages, sorted; a name with /... stands for all below it too
	why    string
}{
	{"github.com/aymanbagabas/go-udiff", "module runner", "how the answers of minions differ, and what an edit changes, as a unified diff"},
	{"github.com/coder/websocket", "netapi", "events for browsers that want them so"},
	{"github.com/dlclark/regexp2", "target/pyre", "the one engine behind expressions in the language of Python"},
	{"github.com/ebitengine/purego", "pam/libpam", "the library of PAM is called without its headers"},
	{"github.com/fsnotify/fsnotify", "beacon pki", "the key directory, and what a beacon is asked to watch"},
	{"github.com/go-crypt/crypt", "eauth module", "hashes of passwords"},
	{"github.com/go-ldap/ldap/v3", "eauth", "users of directory servers"},
	{"github.com/go-sql-driver/mysql", "returner/database/driver sink test/dbtest", "a destination of the sink, and of returns"},
	{"github.com/itchyny/gojq", "cli/saltevent event reactor sink", "filters of events are written in the language of jq"},
	{"github.com/jackc/pgx/v5", "returner/database/driver sink test/dbtest", "a destination of the sink, and of returns"},
	{"github.com/klauspost/compress", "backup", "snapshots of the embedded server are compressed by it"},
	{"github.com/minio/highwayhash", "backup blockfile", "the sums in the files of the embedded server's store"},
	{"github.com/nats-io/jwt/v2", "broker", "servers of others ask and are answered in its format"},
	{natsServer, "broker test/bench/bareserver test/bustest", "both daemons reach the server through broker; bareserver, and those of bustest, are what it is compared with"},
	{natsServer + "/server/archive", "backup", "the form of snapshots, which is all that is in it"},
	{natsServer + "/server/avl", "blockfile", "sets of sequences, as the index of the server's store has them"},
	{"github.com/nats-io/nats.go", "backup broker cli/saltmaster cluster journal master minion outbox rpc test/bench/bare test/bench/bareserver test/bench/fleet test/bustest upstream", "whoever holds a connection; tools hold one through rpc"},
	{"github.com/nats-io/nats.go/jetstream", "journal", "the journal is the one user of JetStream"},
	{"github.com/nats-io/nkeys", "broker upstream", "keys as servers of others write them"},
	{"github.com/nikolalohinski/gonja/v2", "template/jinja", "the syntax of templates"},
	{"github.com/prometheus/client_golang", "metrics", "figures in the words of Prometheus"},
	{"github.com/shirou/gopsutil/v4", "beacon grain module", "facts and figures of the machine"},
	{"github.com/urfave/cli/v2", "cli/...", "command lines"},
	{"golang.org/x/sys", "auth cli cli/saltpam daemon eventhandler posix socket test/netlab uptime", "system calls that the standard library lacks"},
	{"golang.org/x/term", "cli", "what a terminal can do"},
	{"gopkg.in/yaml.v3", "acl config eauth event grain module pillar reactor schedule sink yamlfile", "files that people write"},
	{"modernc.org/sqlite", "returner/database/driver sink", "a destination of the sink, and of returns"},
}

// inModule says whether the package with this path is of the module, and not of
// one whose name only begins alike.
func inModule(path, module string) bool {
	return path == module || strings.HasPrefix(path, module+"/")
}

// ruleFor returns the places of the longest matching row of foreign.
func ruleFor(path string) (places []string, known bool) {
	longest := ""
	for _, f := range foreign {
		if inModule(path, f.module) && len(f.module) > len(longest) {
			longest, places, known = f.module, strings.Fields(f.in), true
		}
	}
	return places, known
}

func isPlace(name string, places []string) bool {
	return slices.ContainsFunc(places, func(p string) bool {
		top, tree := strings.CutSuffix(p, "/...")
		return name == top || tree && strings.HasPrefix(name, top+"/")
	})
}

func TestModulesOfOthersAreUsedInTheirPlaceOnly(t *testing.T) {
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") || strings.HasPrefix(path, module) {
				continue // of the standard library, or our own
			}
			places, known := ruleFor(path)
			if !known {
				t.Errorf("%s imports %s, which has no row in foreign: give it one, and a section in doc/dependencies.md", p.short(), path)
			} else if !isPlace(p.short(), places) {
				t.Errorf("%s imports %s, which is for %s only", p.short(), path, strings.Join(places, ", "))
			}
		}
	}
}

// TestToolsDoNotLinkTheServer keeps the tools small and fast: the server is most
// of the code of a daemon.
func TestToolsDoNotLinkTheServer(t *testing.T) {
	for name := range binaries {
		daemon := name == "salt-master" || name == "salt-minion"
		links := slices.ContainsFunc(goList(t, "-deps", "./cmd/"+name), func(p listed) bool { return inModule(p.ImportPath, natsServer) })
		if links != daemon {
			t.Errorf("%s links the NATS server: %t, want %t", name, links, daemon)
		}
	}
}

// TestDaemonsDoNotLinkDrivers keeps databases out of the programs that most people
// run all the time and use without any.
func TestDaemonsDoNotLinkDrivers(t *testing.T) {
	drivers := []string{"github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5", "modernc.org/sqlite"}
	for name := range binaries {
		uses := name == "salt-event" || name == "salt-returner"
		for _, p := range goList(t, "-deps", "./cmd/"+name) {
			if !uses && slices.ContainsFunc(drivers, func(module string) bool { return inModule(p.ImportPath, module) }) {
				t.Errorf("%s links %s", name, p.ImportPath)
			}
		}
	}
}

// TestOnlyOneProgramRendersTemplates keeps the library, which bounds nothing, out of whatever must not
// be held up.
func TestOnlyOneProgramRendersTemplates(t *testing.T) {
	for name := range binaries {
		links := slices.ContainsFunc(goList(t, "-deps", "./cmd/"+name), func(p listed) bool { return inModule(p.ImportPath, "github.com/nikolalohinski/gonja/v2") })
		if links != (name == "salt-template") {
			t.Errorf("%s links the library of templates: %t", name, links)
		}
	}
}

// TestDependenciesAreDocumented holds doc/dependencies.md to go.mod: a section for
// each module that we import, and for no other.
func TestDependenciesAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "doc", "dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, m := range regexp.MustCompile(`(?m)^## (\S+\.\S+)$`).FindAllStringSubmatch(string(text), -1) {
		described = append(described, m[1])
	}
	required := directModules(t)
	for _, m := range required {
		if !slices.Contains(described, m) {
			t.Errorf("doc/dependencies.md has no section %q", "## "+m)
		}
	}
	for _, m := range described {
		if !slices.Contains(required, m) {
			t.Errorf("doc/dependencies.md describes %s, which go.mod does not require", m)
		}
	}
}

// directModules returns the modules of go.mod that are not indirect.
func directModules(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var modules []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) == 2 && strings.HasPrefix(fields[1], "v") {
			modules = append(modules, fields[0])
		}
	}
	if len(modules) == 0 {
		t.Fatal("go.mod requires nothing")
	}
	return modules
}
