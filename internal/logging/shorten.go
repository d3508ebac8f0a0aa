package logging

// Shorten cuts what somebody unknown says about themselves.
func Shorten(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
