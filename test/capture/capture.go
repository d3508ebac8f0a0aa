// Package capture keeps what the programs and loggers of a test write, to be read while they
// go on. What writes before a test looks, and nothing after, writes into a bytes.Buffer.
package capture

import (
	"bytes"
	"sync"
)

// Buffer is what was written so far. The zero value is empty and ready; all may use it at once.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer, and never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is all that was written until now.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
