package cli

import (
	"context"
	"os"
)

// WhileRead returns a context that ends, with ErrBrokenPipe as its cause, as soon as the reader
// of Stdout is gone, even if nothing is written: for commands that may be silent for long. stop must be called.
func (e *Env) WhileRead(ctx context.Context) (while context.Context, stop func(), err error) {
	out, ok := e.Stdout.(pipeWriter)
	if !ok { // a buffer of a test
		return ctx, func() {}, nil
	}
	return whileRead(ctx, int(out.w.Fd()))
}

func whileRead(ctx context.Context, fd int) (while context.Context, stop func(), err error) {
	wake, done, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	while, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if readerGone(fd, wake) {
			cancel(ErrBrokenPipe)
		}
	}()
	return while, func() {
		done.Close()
		<-ended
		wake.Close()
		cancel(nil)
	}, nil
}
