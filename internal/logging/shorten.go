package logging

// Shorten cuts a long text that an unauthenticated peer sent about itself.
func Shorten(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
