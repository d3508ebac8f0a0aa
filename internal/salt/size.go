package salt

import (
	"fmt"
	"strconv"
	"strings"
)

// maxBytes keeps sums of sizes far from overflow.
const maxBytes = 1 << 60

// ParseSize parses a number of bytes as people type it: 1048576, 1_000_000, 512MiB, 1.5 GB. KB
// means 1000, KiB and a lone K mean 1024. The error has a hint.
func ParseSize(text string) (int64, error) {
	number := prefixOf(text, "0123456789._")
	f, err := strconv.ParseFloat(strings.ReplaceAll(number, "_", ""), 64)
	unit := bytesOf(text[len(number):])
	if f *= unit; err != nil || unit == 0 || f > maxBytes {
		return 0, WithHint(fmt.Errorf("%q is not a size", text), "write a number of bytes, or a number with a unit: KB, MB, GB, KiB, MiB, GiB")
	}
	return int64(f), nil
}

// bytesOf returns the bytes of a unit, 0 if it is unknown.
func bytesOf(unit string) float64 {
	switch strings.ToUpper(strings.TrimSpace(unit)) {
	case "", "B":
		return 1
	case "KB":
		return 1e3
	case "MB":
		return 1e6
	case "GB":
		return 1e9
	case "TB":
		return 1e12
	case "K", "KIB":
		return 1 << 10
	case "M", "MIB":
		return 1 << 20
	case "G", "GIB":
		return 1 << 30
	case "T", "TIB":
		return 1 << 40
	}
	return 0
}
