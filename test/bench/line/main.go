// Command line prints one line: the least that a command can do.
package main

import "fmt"

func main() { fmt.Println("local:\n    True") }
