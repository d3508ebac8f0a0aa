//go:build race

package e2e

const raced = true // the binaries are built as this test is
