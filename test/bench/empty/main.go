// Command empty does nothing: what any Go program costs to start and to end.
package main

func main() {}
