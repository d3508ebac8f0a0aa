// Package accord makes two masters agree on the keys of minions and on tokens. Each master
// stores its decisions in its own table, which the other one mirrors. A rule says which of two
// decisions about the same thing counts; in doubt the refusal does.
//
// It does not know how tables are mirrored, or what a key or a token is for.
package accord
