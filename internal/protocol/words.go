package protocol

import (
	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
)

// ParseWords parses the texts among the arguments like the words of a command line: 5 is a
// number and k=v a keyword argument. Salt's master does so for publish.publish; here it happens
// before the decision, which must be about what the minions will get.
func ParseWords(commands []job.Command) error {
	for i := range commands {
		c := &commands[i]
		args := []any{}
		for _, a := range c.Args {
			word, ok := a.(string)
			if !ok {
				args = append(args, a)
				continue
			}
			more, kwargs, err := argument.Parse([]string{word}, argument.Options{})
			if err != nil {
				return rpc.Errorf(rpc.Usage, "argument of %s: %v", c.Function, err)
			}
			args = append(args, more...)
			for k, v := range kwargs {
				if c.Kwargs == nil {
					c.Kwargs = map[string]any{}
				}
				c.Kwargs[k] = v
			}
		}
		c.Args = args
	}
	return nil
}
