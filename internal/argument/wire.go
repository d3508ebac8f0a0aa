package argument

import (
	"maps"
	"math/big"
)

// keywordsKey is the key that tells a map of keywords from a map that is an argument.
const keywordsKey = "__kwarg__"

// jidDigits is the number of digits in a job id.
const jidDigits = 20

// Condition joins arguments and keywords into the one list that travels with a
// job: the keywords are its last item, a map that holds also "__kwarg__": true.
// Without keywords there is no such item.
//
// A number of twenty digits becomes text, as an argument and as the value of a
// keyword: it is a job id, and those are text everywhere.
func Condition(args []any, kwargs map[string]any) []any {
	list := make([]any, 0, len(args)+1)
	for _, v := range args {
		list = append(list, jidAsText(v))
	}
	if len(kwargs) == 0 {
		return list
	}
	last := make(map[string]any, len(kwargs)+1)
	for k, v := range kwargs {
		last[k] = jidAsText(v)
	}
	last[keywordsKey] = true
	return append(list, last)
}

func jidAsText(v any) any {
	if i, ok := v.(*big.Int); ok && i.Sign() > 0 {
		if s := i.String(); len(s) == jidDigits {
			return s
		}
	}
	return v
}

// Split is the way back from Condition. The maps with it are keywords
// wherever they stand, and of a name that comes twice the later one counts.
// The list is left as it is, and both results are never nil.
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
