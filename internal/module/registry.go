// Package module holds what a minion can execute: the functions such as test.ping and
// cmd.run, with their documentation. What runs them is package function; what they need
// of their minion beyond that is declared here, as [Services]. It decides nothing about
// who may run what, and knows no network.
//
// To add a module:
//
//  1. Write one file named after it, with one literal `var fooModule = &function.Module{...}`
//     whose Functions are sorted by name.
//  2. Add it to the sorted table in registry.go.
//  3. Each function states its parameters; arguments are checked and converted
//     before it runs, so its body reads c.String("name") and cannot fail there.
//  4. It gets a sentence of documentation and an example; a test insists.
//  5. It returns values of the model of package value, or a Go slice or map that
//     value.Encode takes, and never prints.
//  6. A failure is an error, which becomes `ERROR: text` and return code 1.
//     c.SetRetcode says another code without being an error.
//  7. It returns soon after ctx is done. Programs are run by output or
//     [process.Program], as argument vectors, with "--" before foreign words.
//  8. What runs, stores or configures another function has Calls instead of Run.
//  9. A service that the minion may lack (services(c.Host).Events == nil) is asked for
//     by a function of services.go that answers with a clear error.
package module

import (
	"context"

	"github.com/brinebus/brine/internal/function"
)

// modules is all that a minion can execute. Every start of salt-call pays for what
// is computed before main, so the tables are data that lies ready in the program
// file, and regular expressions are compiled by the functions that need them.
var modules = function.Table{
	archiveModule,
	beaconsModule,
	cmdModule,
	configModule,
	cpModule,
	cronModule,
	dataModule,
	diskModule,
	environModule,
	eventModule,
	fileModule,
	gitModule,
	grainsModule,
	groupModule,
	hashutilModule,
	hostsModule,
	httpModule,
	keyModule,
	kmodModule,
	localeModule,
	matchModule,
	mineModule,
	minionModule,
	mountModule,
	networkModule,
	pillarModule,
	pkgModule,
	psModule,
	publishModule,
	randomModule,
	saltutilModule,
	scheduleModule,
	serviceModule,
	shadowModule,
	sshModule,
	statusModule,
	sysModule,
	sysctlModule,
	systemModule,
	systemdModule,
	testModule,
	timezoneModule,
	userModule,
	x509Module,
}

// Builtin is the table of the functions of minions.
func Builtin() function.Table { return modules }

// Run executes a function of this package. It returns when the function does;
// a function returns soon after ctx is done, and then its failure carries the
// cause of ctx. A panic fails this call only.
func Run(ctx context.Context, c function.Call) function.Result { return modules.Run(ctx, c) }
