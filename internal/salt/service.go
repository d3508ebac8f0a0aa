package salt

import (
	"fmt"
	"strings"
)

// CheckService refuses the name of a service that is an option or a path: the program service takes the
// former for an option and, given the latter, runs any program as root.
func CheckService(name string) error {
	if name == "" || strings.HasPrefix(name, "-") || strings.Contains(name, "/") {
		return fmt.Errorf("%q is not the name of a service", name)
	}
	return nil
}
