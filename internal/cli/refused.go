package cli

// RefuseUser is --user of the tools: the kernel says who they are.
func RefuseUser() Refusal {
	return Refusal{"user,u=", "a program runs as who starts it, and the daemon hears from the kernel who that is",
		"'sudo -u USER COMMAND' runs it as somebody else"}
}
