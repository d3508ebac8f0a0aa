//go:build !linux

package netlab

import (
	"errors"
	"io"
)

func (h *Host) tap(string) (io.ReadWriteCloser, error) {
	return nil, errors.New("these network devices are those of Linux")
}
