package saltapi

import (
	"encoding/pem"
	"fmt"
	"os"
)

// readChain reads the intermediate certificates between ours and one that clients trust.
func readChain(path string) ([][]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ssl_chain: %w", err)
	}
	var chain [][]byte
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			chain = append(chain, block.Bytes)
		}
	}
	return chain, nil
}
