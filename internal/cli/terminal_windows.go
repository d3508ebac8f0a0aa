package cli

import "golang.org/x/sys/windows"

// hideTyping stops the echo of a console until show is called.
func hideTyping(fd int) (show func(), err error) {
	console := windows.Handle(fd)
	var shown uint32
	if err := windows.GetConsoleMode(console, &shown); err != nil {
		return nil, err
	}
	if err := windows.SetConsoleMode(console, shown&^windows.ENABLE_ECHO_INPUT); err != nil {
		return nil, err
	}
	return func() { windows.SetConsoleMode(console, shown) }, nil
}
