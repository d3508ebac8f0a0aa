package acl

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/test/documented"
)

// byReason lists cases of a file by their numbers, under the reason why Brine answers them
// differently.
type byReason map[string]string

func (b byReason) cases(file string) map[string]string {
	out := map[string]string{}
	for reason, numbers := range b {
		for n := range strings.FieldsSeq(numbers) {
			out[file+"-"+n] = reason
		}
	}
	return out
}

// aclDifferences are the cases of testdata/acl.json that Brine refuses on purpose
// and Salt allows.
var aclDifferences = byReason{
	"patterns are anchored at both ends":                                                                     "0084 0088 0794 0858 0934 1044 1520",
	"a name does not match if a newline follows it":                                                          "0090",
	"an empty pattern allows nothing":                                                                        "0417 0444 0666",
	"a string instead of a list is a mistake, and no rule of the file is in force":                           "0178 0180 0441 0519 0520 1078 1374 1500 1501 1502 1503 1505",
	"a pattern that does not compile is a mistake, and no rule of the file is in force":                      "0239 0240 0242 0246 0251 0253 0618 1325 1328 1329 1330 1332 1334 1516 1517",
	"a value that is neither text nor a list, or null, is a mistake, and no rule of the file is in force":    "0272 0273 0274 0277 0293 0295 0298 0312 1047 1540",
	"a target with a mistake is an error; in Salt it matches nobody":                                         "0702 0703 0735 0736 0737 0750 0752 0753 0754 0755 0763 0764",
	"find_job is not needed to follow a job, so it needs a rule like any other function":                     "0777 0782 1495",
	"arguments that a condition does not list are refused":                                                   "0831 0849 0878 0880",
	"a rule with args: [] allows no arguments, a rule with {} allows all":                                    "0852 0871 0896 0953 1012 1016",
	"a user with the name * is not everybody":                                                                "1365",
	"the name of a group is not empty":                                                                       "1382",
	"the name of a function is module.function":                                                              "1496",
	"the name of a user is not empty":                                                                        "1572",
	"targets may use pillar only where a rule grants the key by name":                                        "0342 0358 0374 0494 0544 0613 0714 0715 0716 0723 0725 0727",
	"the expression of a target must be within that of the rule, whichever minions it matches at the moment": "0373 0383 0391 0392 0498 0517 0559 0674 0691 0705 0706 0739 0760 0761 1487",
}

// peerDifferences are those of testdata/peer.json.
var peerDifferences = byReason{
	"ids are anchored at both ends":                                                                          "0035 0046 0064 0092 0269 0305 0308",
	"patterns of functions are anchored at both ends":                                                        "0023 0062 0063 0206 0208 0252 0299",
	"a target with a mistake is an error; in Salt it matches nobody":                                         "0184 0190 0203",
	"arguments that a condition does not list are refused":                                                   "0223",
	"the name of a function is module.function":                                                              "0326",
	"targets may use pillar only where a rule grants the key by name":                                        "0170 0174 0176 0194 0197 0199",
	"the expression of a target must be within that of the rule, whichever minions it matches at the moment": "0168 0183 0189",
}

// peerOther are cases of testdata/peer.json that do not concern access in
// Brine.
var peerOther = byReason{
	"the id in a message is ignored: the minion is the one that the key belongs to": "0105 0313",
	"the messages have another form, in which this mistake cannot be made":          "0112 0114",
	"a timeout that is not a number is an error in the arguments":                   "0237 0239",
}

// TestDifferencesAreDocumented: a difference that the documents do not mention is a mistake.
func TestDifferencesAreDocumented(t *testing.T) {
	for _, list := range []byReason{aclDifferences, peerDifferences, peerOther} {
		documented.Differences(t, slices.Collect(maps.Keys(list))...)
	}
}
