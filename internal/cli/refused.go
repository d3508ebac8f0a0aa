package cli

// RefuseUser refuses the option --user of Salt's tools: the kernel names the user.
func RefuseUser() Refusal {
	return Refusal{"user,u=", "a program runs as who starts it, and the daemon hears from the kernel who that is",
		"'sudo -u USER COMMAND' runs it as somebody else"}
}

// RefuseExecutors are the options for another way to run a function than in the minion itself.
func RefuseExecutors() []Refusal {
	const reason, hint = "there are no executors: functions run in the minion itself, or as the programs that they are",
		"cmd.run with runas=USER runs a command as somebody else"
	return []Refusal{{"module-executors=", reason, hint}, {"executor-opts,executor_opts=", reason, hint}}
}
