package structure

import (
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/test/order"
)

// layer says what a package may import of our own, and why that and no more.
// Arrows point from mechanism to meaning: daemons know rules, rules know words.
type layer struct {
	name string
	may  string // names of packages, sorted
	why  string
}

// layers are all packages below internal, and those that never ship, sorted. A package that needs one more
// import gets it here, with its reason; often the better way is an interface, or
// a function, that it declares itself.
var layers = []layer{
	{"accord", "atomicfile audit backoff journal keyring logging pki salt uptime", "which of several masters' decisions about keys and tokens counts, and the carrying out of it; tables, their mirrors and the store of tokens are interfaces that it declares, and journal has the form of their entries"},
	{"acl", "salt target target/pyre value", "rules in, answer out: they are written over names, targets and arguments, and the answer needs no I/O"},
	{"admission", "audit auth broker bus keyring logging pki protocol rpc salt socket upstream", "who is let in by their key, and who is cut: keys are judged by keyring; connections, events and minions are interfaces that it declares"},
	{"argument", "salt value yamlfile/scalar", "turns words into values"},
	{"atomicfile", "posix", "writes bytes; whose they are is not its affair"},
	{"audit", "atomicfile event journal posix salt value", "the chain of decisions: it is handed what was decided, and keeps it in a queue of the journal, or while that is not possible in a file, together with the events about it"},
	{"auth", "salt", "asks the system who somebody is; what they may do is for acl"},
	{"authz", "acl audit auth authz/command authz/decision authz/eventacl authz/internal/seal authz/login bus event job protocol rpc salt target", "decides who may do what on a master: it knows who asks, asks acl, and writes down what was decided; the master's minions are an interface"},
	{"authz/authztest", "authz/decision authz/internal/seal", "decisions for the tests of what comes after them; nothing that ships imports it"},
	{"authz/command", "acl extension function job module protocol runner salt", "what the tables of functions say of a command, before a decision about it; it makes none"},
	{"authz/decision", "authz/internal/seal", "what a server wants before it answers; every tool links it, so it has nothing else"},
	{"authz/eventacl", "authz/decision authz/internal/seal bus config event logging rpc salt", "who may do what with events, for both daemons; how they travel is for eventbus"},
	{"authz/internal/seal", "", "the decision itself: only packages of authz can make one that allows"},
	{"authz/login", "audit authz/decision authz/internal/seal bus eauth logging protocol rpc runner salt value", "who has logged in on which connection; what they may do is for authz"},
	{"backoff", "", "how long the pauses are between attempts; what is attempted is not its affair"},
	{"backup", "atomicfile backoff broker bus config journal posix salt", "stores of masters as a whole: it opens those that no daemon has open, and knows what streams are there, not what is in them; a start in the wrong mode is a mistake in the configuration"},
	{"beacon", "config override posix process salt", "what is worth an event on this machine, and what functions have changed of it; where events go is for its caller"},
	{"blockfile", "atomicfile posix", "the files of the embedded server's store, while it is closed; it knows no message"},
	{"broker", "atomicfile backoff blockfile bus logging member pki posix salt socket", "lets in whom its daemon names, with the rights of the one table in bus, and other members of a cluster by their rule; it knows no jobs"},
	{"bus", "event salt", "subjects, roles, rights and the one table of what can be asked"},
	{"cli", "logging output salt version", "what the programs say to a person; no configuration, so that -h needs none"},
	{"cli/client", "atomicfile cli config daemon logging posix protocol rpc salt socket target yamlfile", "which daemon a person means, who they are there, and what its errors mean to them; package client asks"},
	{"cli/direct", "cli config pki protocol rpc salt upstream version", "salt-call's own connection to a master, in the words of a tool where there is none"},
	{"cli/jobview", "cli cli/client config job logging output salt value", "shows a job to whoever waits for it, for all commands that do"},
	{"cli/machine", "beacon config extension fileserver function grain module pki returner version", "this machine as functions see it without any bus"},
	{"cli/monitor", "broker config eventbus metrics protocol", "what a daemon counts, as metrics; it is linked by the commands of daemons alone"},
	{"cli/route", "bus cli cli/client cli/direct cli/machine config fileserver function module peer protocol rpc schedule socket value", "the ways of salt-call to the buses, and what functions have over each"},
	{"cli/saltapi", "cli cli/client cli/serve client config daemon netapi salt", "starts one server of HTTP"},
	{"cli/saltcall", "argument cli cli/client cli/route config extension function job logging module output protocol returner rpc salt value", "runs functions in its own process and says what became of them; how it reaches the buses is for route"},
	{"cli/saltcmd", "argument cli cli/client cli/jobview config protocol salt", "asks the master and shows what comes"},
	{"cli/saltcp", "argument cli cli/client cli/jobview config job output salt target", "sends files in jobs and shows what minions say; the rest is as for salt"},
	{"cli/saltevent", "atomicfile backoff bus cli cli/client config daemon event eventhandler pki protocol salt sink", "asks a daemon and shows what comes; credentials of clients are files, as keys are"},
	{"cli/saltkey", "atomicfile cli cli/client config output pki posix protocol rpc salt", "works on the key directory, whether or not a master runs; a running one it tells who decides"},
	{"cli/saltmaster", "backup cli cli/client cli/monitor cli/serve config daemon logging master membership metrics pki runner salt settings version", "starts one daemon, whose configuration it checks before, and whose store it can restore while the daemon does not run"},
	{"cli/saltminion", "cli cli/client cli/monitor cli/serve config daemon logging metrics minion upstream version", "starts one daemon; the words of a refusal are those of link"},
	{"cli/saltpam", "cli pam pam/libpam", "asks PAM one question and ends; the only program that loads its library"},
	{"cli/saltreturner", "cli returner/database returner/database/driver", "puts one return into a database and ends; the only program that a minion starts with drivers in it"},
	{"cli/saltrun", "argument cli cli/client cli/jobview config event protocol salt value", "asks the master and shows what comes"},
	{"cli/salttemplate", "cli posix template template/jinja value", "renders one template and ends; the only program with their syntax in it"},
	{"cli/serve", "cli cli/client config daemon logging pki protocol salt", "what the commands of both daemons share, the words for key files that are not safe and a question to one that runs among it; not the daemons"},
	{"client", "event job protocol rpc salt socket value", "what other programs import: the requests of a user in words of its own, none of the packages below in its types"},
	{"cluster", "bus event logging rpc salt", "what members of a cluster tell each other; what their requests are about is for others"},
	{"config", "atomicfile posix salt yamlfile", "files to typed settings; rules in them are parsed by the packages that own them"},
	{"daemon", "atomicfile posix salt", "what a daemon owes the system around it"},
	{"dispatch", "authz backoff bus event function job journal lease logging outbox protocol rpc salt target value", "a job from its acceptance to its end; who may is decided by authz, and what it needs of its master it declares"},
	{"eauth", "backoff config pam posix salt", "asks other systems whether somebody is who they say; what they may do is for acl"},
	{"event", "salt target/fnmatch target/pyre value", "what an event is, its tags and its filters"},
	{"eventbus", "authz/decision authz/eventacl backoff blockfile bus event journal lease logging profile protocol rpc semaphore value", "events between the journal and listeners, for both daemons; which member of a cluster handles them is decided by lease"},
	{"eventhandler", "backoff event posix protocol", "retries and order for events, from wherever they come: the tools and the master use it"},
	{"executor", "backoff config function job logging module outbox protocol returner rpc salt schedule target upstream value", "runs jobs on a minion: who sends them, what they run and where their returns wait are packages below, the minion is an interface that it declares"},
	{"extension", "atomicfile fileserver posix process salt value", "programs that people add, under one contract; who offers them as what is for others"},
	{"fileapi", "fileserver journal logging protocol rpc salt upload", "answers minions that ask for files and hand files in: which there are is for fileserver, and who may for authz; that all masters get those is for upload, which is handed the journal"},
	{"fileserver", "posix salt", "files that are served, copies of them, and files that are handed in: who may is for others"},
	{"fleet", "authz/decision bus cluster job journal logging mine pillar protocol rpc salt semaphore target template value", "what the master knows of its minions; who may ask is decided by its master, to whom it declares what it needs"},
	{"forwarder", "beacon event logging outbox protocol rpc salt upstream value", "events of a minion for its masters: it shapes them as a master would, and puts them into outboxes"},
	{"function", "extension process salt target/fnmatch value", "the engine that checks and runs functions, whatever table they stand in; what they need of their host is handed through"},
	{"grain", "posix salt target target/fnmatch value yamlfile", "facts of this machine"},
	{"host", "config event extension fileserver forwarder function grain job module peer protocol returner rpc upstream value", "a minion as functions see it: it puts together what package function hands to them"},
	{"job", "atomicfile salt target value", "the progress of a job as a state machine: it is handed what happened"},
	{"journal", "atomicfile backoff bus event logging salt uptime value", "the one user of JetStream, except that backup moves whole streams: appends, reads and makes room; it warns of what it drops"},
	{"keyring", "atomicfile audit bus config pki posix salt target target/fnmatch target/pyre", "the master's knowledge of keys; connections are cut, and words are said, by its master"},
	{"lease", "backoff journal uptime", "which member of a cluster does what only one may do, by entries of a table; what that is, is for others"},
	{"localapi", "auth authz/decision authz/eventacl bus eventbus forwarder logging outbox peer protocol rpc salt scheduler upstream value", "answers programs of this machine: what they want is done by the parts of the daemon"},
	{"logging", "salt", "lines for people and files"},
	{"master", "admission audit authz broker bus config daemon eventbus journal keyring membership rpc runner service settings", "the daemon: it opens what decides who may connect and what they may do, and what is stored, then the services over them; never minion"},
	{"member", "atomicfile pki salt", "which masters are one system, by their keys, and the list of those that are removed; what goes over a link between them is not its affair"},
	{"membership", "accord broker cluster config dispatch eventbus fleet journal keyring lease logging member mirror runner salt", "makes a master a member of a cluster, or of a pair that mirror each other: it connects parts of the master with the other masters, and decides nothing of what they do"},
	{"metrics", "salt socket", "names, and figures that it is handed; whose they are is not its affair"},
	{"mine", "salt value", "the words about the mine, which functions, the master and what goes between them have in common"},
	{"minion", "authz/eventacl beacon broker bus config daemon eventbus executor forwarder host journal localapi outbox rpc scheduler upstream", "the daemon: it opens its parts in order, and ends them; never master or runner"},
	{"mirror", "accord broker bus config journal keyring logging member salt", "keeps the mirror of another master's journal, and of what that one has decided: it dials, watches and resumes; what is in it, and who may read that, is for others"},
	{"module", "argument atomicfile event extension fileserver function mine posix process salt schedule target target/fnmatch template value yamlfile", "functions of a minion; buses and daemons reach them as interfaces that it declares"},
	{"netapi", "argument client logging output rpc salt value yamlfile", "HTTP to requests and back, as a program of client like any other; who may do what is for the master that it asks. rpc bounds what a body makes, and logging what refused requests write"},
	{"outbox", "atomicfile authz/decision backoff blockfile bus event eventbus job journal logging posix protocol rpc salt value", "store-and-forward, both ends: what the returns among the messages mean, who may fire what, and the connection, are interfaces that it declares"},
	{"output", "salt value", "data to text"},
	{"override", "atomicfile config schedule value", "what functions have changed of a setting; what an entry means is for its caller"},
	{"pam", "process", "a question to a program of ours, so that modules of others run in no daemon"},
	{"pam/libpam", "pam", "the library, loaded when asked; never in a daemon"},
	{"peer", "bus fileserver function job mine module protocol rpc salt value", "what a minion asks of others and of the master's files, over a connection that its caller has"},
	{"pillar", "salt target value yamlfile", "which data belongs to which minion"},
	{"pki", "atomicfile backoff posix salt target/fnmatch", "keys and the files that hold them"},
	{"posix", "", "what systems have in different forms: whose a file is, locks, signals"},
	{"process", "posix", "runs programs, whoever wants it"},
	{"profile", "protocol rpc", "takes profiles of its own process; who may ask is decided before"},
	{"protocol", "argument event fileserver job pki rpc salt schedule value", "the bodies of requests, with the errors of bus in some, and the words among their arguments: no other behaviour"},
	{"reactor", "backoff config event eventbus eventhandler job logging process protocol runner salt target template value yamlfile/scalar", "what is done about an event: rules and templates, and the handlers that carry them out over the event bus; whether a job of theirs may start is for the master, which it asks"},
	{"returner", "event extension posix process returner/database salt value", "where returns go beside the master; what reaches the bus goes through a function of its host"},
	{"returner/database", "process salt", "an order for a program of ours, so that drivers are in no daemon"},
	{"returner/database/driver", "returner/database", "the drivers; never in a daemon"},
	{"rpc", "authz/decision bus logging pki salt socket", "requests and streamed answers; both halves without the NATS server, since every tool links it; a master is known by its key"},
	{"runner", "acl audit eauth event extension fileserver function grain job pki salt target target/fnmatch value", "functions of the master, which is an interface; those of minions it knows as a table only"},
	{"runnerjob", "audit authz authz/decision dispatch event function job journal module protocol rpc runner salt semaphore value", "runs runners for whoever asks: decided by authz and nobody else, recorded, and over a host in their name; what it needs of its master it declares"},
	{"salt", "", "the vocabulary: everybody imports it, so it imports nobody"},
	{"schedule", "salt value", "when jobs are due: it is handed the time"},
	{"scheduler", "atomicfile config override schedule", "starts what is due; how a job runs is an interface that it declares"},
	{"semaphore", "", "shares what is scarce, and knows nothing of it"},
	{"service", "audit authz config dispatch eventbus fileapi fleet journal keyring outbox reactor rpc runner runnerjob salt", "opens the parts of a master that do what minions and users want, and says which of them answers which request; who may connect, the bus and its store are for master"},
	{"settings", "acl audit auth authz authz/command authz/eventacl config eauth event extension process reactor runner", "what of a master's configuration may change while it runs: it reads it for all that rules are for; its master puts it in force"},
	{"sink", "backoff event posix salt yamlfile", "events to files, databases and services; where they come from is an interface that it declares"},
	{"socket", "atomicfile posix salt", "local sockets, and which user is at the other end"},
	{"target", "salt target/fnmatch target/pyre value", "expressions over facts"},
	{"target/fnmatch", "", "shell patterns, for ids, tags and names of functions alike"},
	{"target/pyre", "", "regular expressions, a language of their own"},
	{"template", "process salt value", "starts the program that renders templates; it has none of their syntax"},
	{"template/jinja", "target template value", "templates over values; what they may take is for the program that links it"},
	{"test/attack", "", "attacks the programs from outside; no attacker has any of our code"},
	{"test/bench", "pki test/port", "measures programs from outside; the keys are for what they are compared with"},
	{"test/bench/bare", "pki", "NATS and nothing else, to compare with"},
	{"test/bench/bareserver", "pki", "NATS and nothing else, to compare with"},
	{"test/bench/empty", "", "the cost of a process"},
	{"test/bench/fleet", "bus function job outbox peer pki protocol rpc salt upstream value", "simulated minions: the very packages of a minion's daemon, without its machine"},
	{"test/bench/line", "", "the cost of a line over a socket"},
	{"test/bench/measure", "test/bench", "starts the measurement"},
	{"test/bustest", "broker bus member pki rpc salt socket test/deadline upstream", "starts a real broker for the tests of others, which announces the protocol of a master"},
	{"test/capture", "", "keeps what programs and loggers write, for the tests of others"},
	{"test/chaos", "test/netlab test/port test/watchdog test/wrongclock", "treats the programs badly from outside, on hosts whose cables can be pulled; it has none of their code"},
	{"test/clustertest", "cluster journal salt test/bustest", "starts what a member of a cluster has above its bus, for the tests of others"},
	{"test/dbtest", "test/port", "starts real databases for the tests of others"},
	{"test/deadline", "", "bounds what the tests of others wait for"},
	{"test/documented", "", "looks into a page, for the tests of others that compare with Salt"},
	{"test/e2e", "test/netlab test/port test/programs test/wrongclock", "uses the built programs as a person would, on hosts whose cables can be pulled and with clocks that are wrong"},
	{"test/keyupdate", "", "speaks TLS as crypto/tls does not, for the tests of others"},
	{"test/natslab", "test/port", "starts real NATS servers for the tests of others; it has none of our code"},
	{"test/netlab", "test/watchdog", "hosts in network namespaces, for tests and benchmarks"},
	{"test/order", "", "says which entry of a table stands wrong, for the tests of others"},
	{"test/port", "", "chooses ports for the programs that tests start"},
	{"test/programs", "", "has the built programs for the tests that run them"},
	{"test/release", "test/capture", "makes the packages and installs them, as a person would"},
	{"test/structure", "", "looks at the others from outside"},
	{"test/watchdog", "", "cleans up after tests whose processes were killed"},
	{"test/wrongclock", "", "makes the clock of one process wrong, for the tests of others"},
	{"upload", "atomicfile backoff fileserver journal logging salt semaphore", "the files of minions at all masters of a system: stored in tables, and put into each directory by the rules of fileserver; whether a minion may upload is decided before"},
	{"upstream", "atomicfile backoff bus config event job logging pki protocol rpc salt value", "a minion's masters: what is done with a connection is for an interface that it declares"},
	{"uptime", "", "a clock; what is measured by it is for others"},
	{"value", "", "values and their one encoding"},
	{"version", "", "a number"},
	{"yamlfile", "salt yamlfile/scalar", "the one reader of YAML files, and of the words in them; what a file may hold is for whoever reads it"},
	{"yamlfile/scalar", "", "what a word without quotes means, in files and in arguments"},
}

// binaries are the programs: the one package of a command that each may import.
var binaries = map[string]string{
	"salt":          "cli/saltcmd",
	"salt-api":      "cli/saltapi",
	"salt-call":     "cli/saltcall",
	"salt-cp":       "cli/saltcp",
	"salt-event":    "cli/saltevent",
	"salt-key":      "cli/saltkey",
	"salt-master":   "cli/saltmaster",
	"salt-minion":   "cli/saltminion",
	"salt-pam":      "cli/saltpam",
	"salt-returner": "cli/saltreturner",
	"salt-run":      "cli/saltrun",
	"salt-template": "cli/salttemplate",
}

func TestTheTableOfLayersIsSorted(t *testing.T) {
	order.Of(t, "layers", layers, func(l layer) string { return l.name })
	for _, l := range layers {
		order.Check(t, "layer "+l.name, strings.Fields(l.may))
		if l.why == "" {
			t.Errorf("layer %s has no reason", l.name)
		}
	}
}

// TestLayersHaveNoCycle holds for the table what the compiler holds for the code:
// else a row could allow what its reader takes for impossible.
func TestLayersHaveNoCycle(t *testing.T) {
	below := map[string][]string{}
	for _, l := range layers {
		below[l.name] = strings.Fields(l.may)
	}
	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		if slices.Contains(path, name) {
			t.Fatalf("layers allow a cycle: %s", strings.Join(append(path, name), " → "))
		}
		for _, next := range below[name] {
			visit(next, append(path, name))
		}
	}
	for _, l := range layers {
		visit(l.name, nil)
	}
}

func TestPackagesImportOnlyTheirLayersBelow(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasPrefix(p.ImportPath, command) {
			continue
		}
		i, found := slices.BinarySearchFunc(layers, p.short(), func(l layer, name string) int { return strings.Compare(l.name, name) })
		if !found {
			t.Errorf("package %s has no row in layers: give it one, with what it may import and why", p.short())
			continue
		}
		may := strings.Fields(layers[i].may)
		for _, path := range p.Imports {
			name, own := strings.CutPrefix(path, internal)
			if own && !slices.Contains(may, name) {
				t.Errorf("%s imports %s, which layers does not allow: %s", p.short(), name, layers[i].why)
			}
		}
	}
}

// TestAttackersHaveNoneOfOurCode: what an attacker sends must not depend on what we would
// let them send. The programs that they attack are no code of theirs.
func TestAttackersHaveNoneOfOurCode(t *testing.T) {
	for _, s := range sources(t) {
		for _, i := range s.tree.Imports {
			if path := strings.Trim(i.Path.Value, `"`); s.pkg.short() == "test/attack" && strings.HasPrefix(path, module) && !strings.HasSuffix(path, "/test/programs") {
				t.Errorf("%s: an attack imports %s", s.at(i), path)
			}
		}
	}
}

func TestLayersNameOnlyPackagesThatExist(t *testing.T) {
	exists := map[string]bool{}
	for _, p := range packages(t) {
		exists[p.short()] = true
	}
	for _, l := range layers {
		for _, name := range append(strings.Fields(l.may), l.name) {
			if !exists[name] {
				t.Errorf("layer %s: there is no package %s", l.name, name)
			}
		}
	}
}

func TestBinariesImportOnlyTheirCommand(t *testing.T) {
	found := 0
	for _, p := range packages(t) {
		name, ok := strings.CutPrefix(p.ImportPath, command)
		if !ok {
			continue
		}
		own, known := binaries[name]
		if !known {
			t.Errorf("binary %s has no row in binaries", name)
		}
		found++
		want := []string{internal + "cli", internal + own, "os"}
		if got := slices.Sorted(slices.Values(p.Imports)); !slices.Equal(got, want) {
			t.Errorf("cmd/%s imports %q, want %q and nothing else", name, got, want)
		}
	}
	if found != len(binaries) {
		t.Errorf("there are %d binaries, want %d", found, len(binaries))
	}
}
