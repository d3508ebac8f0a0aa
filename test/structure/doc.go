// Package structure holds the tests that guard how the project is put together:
// which package may import which, which modules of others are used where, and the
// habits that a compiler does not check. It has no code for the programs.
package structure
