package logging

// Remotes returns the attributes for the addresses of a connection and of an older one that gives way to it. Those that
// are not known ("") are left out.
func Remotes(newer, older string) (attrs []any) {
	if newer != "" {
		attrs = append(attrs, "remote", Shorten(newer))
	}
	if older != "" {
		attrs = append(attrs, "older_remote", Shorten(older))
	}
	return attrs
}
