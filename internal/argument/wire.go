package argument

import (
	"maps"
	"math/big"
)

// keywordsKey distinguishes a map of keywords from a map that is an argument.
const keywordsKey = "__kwarg__"

// jidDigits is the number of digits in a job id.
const jidDigits = 20

// JobIDsAsText converts each number of twenty digits among the arguments of a job, and among the
// values of its keywords, to text, in place: it is a job id, and those are text everywhere.
func JobIDsAsText(args []any, kwargs map[string]any) {
	for i, v := range args {
		args[i] = jidAsText(v)
	}
	for k, v := range kwargs {
		kwargs[k] = jidAsText(v)
	}
}

func jidAsText(v any) any {
	if i, ok := v.(*big.Int); ok && i.Sign() > 0 {
		if s := i.String(); len(s) == jidDigits {
			return s
		}
	}
	return v
}

// Split separates the keywords from a list of arguments. In Salt they are in a map that also
// contains "__kwarg__": true. Such maps are keywords at any position; if a name comes twice, the
// later one counts. The list is not changed, and both results are not nil.
func Split(list []any) (args []any, kwargs map[string]any) {
	args, kwargs = make([]any, 0, len(list)), map[string]any{}
	for _, v := range list {
		if m, ok := v.(map[string]any); ok && m[keywordsKey] == true {
			maps.Copy(kwargs, m)
			continue
		}
		args = append(args, v)
	}
	delete(kwargs, keywordsKey)
	return args, kwargs
}
