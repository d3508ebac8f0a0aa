package logging

// Shorten cuts a long text that a peer has chosen.
func Shorten(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
