package output

// color is the escape sequence that switches a colour on.
type color string

const (
	none         color = ""
	red          color = "\x1b[0;31m"
	green        color = "\x1b[0;32m"
	blue         color = "\x1b[0;34m"
	magenta      color = "\x1b[0;35m"
	cyan         color = "\x1b[0;36m"
	lightRed     color = "\x1b[0;1;31m"
	lightGreen   color = "\x1b[0;1;32m"
	lightYellow  color = "\x1b[0;1;33m"
	lightBlue    color = "\x1b[0;1;34m"
	lightMagenta color = "\x1b[0;1;35m"

	colorEnd = "\x1b[0;0m"
)

// paint puts s between the escape sequences of c, if colours are enabled.
func (o Options) paint(c color, s string) string {
	if !o.Color || c == none {
		return s
	}
	return string(c) + s + colorEnd
}
