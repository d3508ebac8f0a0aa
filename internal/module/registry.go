// Package module holds what a minion can execute: the functions such as test.ping and
// cmd.run, with their documentation. Package function runs them; what else they need from
// their minion is declared here, as [Services]. It does not decide who may run what, and it
// knows no network.
//
// To add a module:
//
//  1. Write one file named after it, with one literal `var fooModule = &function.Module{...}`
//     whose Functions are sorted by name.
//  2. Add it to the sorted table in registry.go.
//  3. Each function states its parameters; arguments are checked and converted
//     before it runs, so its body reads c.String("name") and cannot fail there.
//  4. It has a sentence of documentation and an example; a test checks this.
//  5. It returns values of the types of package value, or a Go slice or map that
//     value.Encode accepts, and never prints.
//  6. A failure is an error, which becomes `ERROR: text` and return code 1.
//     c.SetRetcode sets another code without an error.
//  7. It returns soon after ctx is done. Programs are run by output or
//     [process.Program], as argument vectors, with "--" before foreign words.
//  8. A function that runs, stores or configures another function has Calls instead of Run.
//  9. A service that may be nil (services(c.Host).Events == nil) is fetched with a function of
//     services.go that returns a clear error.
package module

import (
	"context"

	"github.com/brinebus/brine/internal/function"
)

// modules is everything that a minion can execute. Every start of salt-call pays for what is
// computed before main, so the tables are constant data in the program file, and regular
// expressions are compiled by the functions that need them.
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

// Builtin returns the table of the minions' functions.
func Builtin() function.Table { return modules }

// Run executes a function of this package and returns when it ends. A function returns soon after
// ctx is done; then its failure wraps the cause of ctx. A panic fails only this call.
func Run(ctx context.Context, c function.Call) function.Result { return modules.Run(ctx, c) }
