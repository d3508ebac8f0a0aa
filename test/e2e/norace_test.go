//go:build !race

package e2e

const raced = false // the binaries are built as this test is
