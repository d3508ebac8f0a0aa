// Package config reads the configuration of the master and of the minion into typed structs.
// The keys, defaults and meanings are Salt's; the checks are stricter. It opens only
// configuration files, and for a minion without an id it finds out the machine's name. It does
// not parse access rules, schedules or targets: their packages get them with their position in
// the file.
//
// A configuration is one file, master or minion, in a directory, and drop-ins
// beside it:
//
//	/etc/salt/master
//	/etc/salt/master.d/*.conf        default_include, sorted by name
//	include: [extra/*.conf]          relative to the file that says it
//
// Later sources win over earlier ones: defaults, the file, the drop-ins of default_include,
// those of include, then the options of the command line. Drop-ins replace whole settings of
// the main file; among themselves their maps are merged and their lists joined. This is Salt's
// rule.
//
// Whoever can write a configuration file can run anything, so a daemon refuses
// files and directories that others own or may write (Options.CheckOwner).
package config
