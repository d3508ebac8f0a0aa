// Package bench measures what Brine costs, each operation beside the same one
// done with nothing but NATS, and prints one table. scripts/bench runs it.
//
// It asserts no times: a shared machine would make that a lie. The programs below
// this package are what Brine is compared with.
package bench
