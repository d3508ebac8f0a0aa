package value

// Count is how many values the JSON document b has at most: the maps and lists themselves,
// and what is in them; an empty one counts twice. Of what is no JSON it is some number.
func Count(b []byte) (n int) {
	within := false // a text
	n = 1
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case within && c == '\\':
			i++
		case c == '"':
			within = !within
		case within:
		case c == ',' || c == '{' || c == '[':
			n++
		}
	}
	return n
}
