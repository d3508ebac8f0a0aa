package peer

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// pushPart is how many bytes of a file one request has.
const pushPart = 256 << 10

// Push uploads files to the master, over the connection in use.
func Push(conn func() *rpc.Conn) func(ctx context.Context, name string, content io.Reader) error {
	return func(ctx context.Context, name string, content io.Reader) error {
		c := conn()
		if c == nil {
			return errors.New("there is no connection to a master")
		}
		q := fileserver.Piece{Path: name, Upload: bus.NewNonce(), Data: make([]byte, pushPart)}
		sum, in := sha256.New(), bufio.NewReaderSize(content, pushPart)
		for {
			n, err := io.ReadFull(in, q.Data[:pushPart])
			q.Data = q.Data[:n]
			sum.Write(q.Data)
			_, peek := in.Peek(1)
			switch {
			case err != nil && err != io.EOF && err != io.ErrUnexpectedEOF:
				return err
			case err != nil || peek == io.EOF:
				q.SHA256 = hex.EncodeToString(sum.Sum(nil))
			}
			if err := c.Ask(ctx, protocol.OpPush, q, nil); err != nil {
				return err
			}
			if q.SHA256 != "" {
				return nil
			}
			q.Offset += int64(n)
		}
	}
}
