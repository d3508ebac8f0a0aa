package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// spoolSum is the length of the checksum before the text of a record.
const spoolSum = len("01234567")

// line returns a record as it is in the file: its checksum in hexadecimal digits, a blank, its text
// as JSON, and a line feed.
func (r spooled) line() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("01234567 ")
	text := json.NewEncoder(&b)
	text.SetEscapeHTML(false) // the texts of events are JSON, and stay as they are
	if err := text.Encode(r); err != nil {
		return nil, fmt.Errorf("record it: %w", err)
	}
	line := b.Bytes()
	copy(line, fmt.Sprintf("%08x", crc32.ChecksumIEEE(line[spoolSum+1:len(line)-1])))
	return line, nil
}

// errNoRecord is why a line is no record.
var errNoRecord = errors.New("not a record")

// readSpooled is the inverse of line, without the line feed.
func readSpooled(line []byte) (r spooled, err error) {
	if len(line) <= spoolSum+1 || line[spoolSum] != ' ' || string(line[:spoolSum]) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(line[spoolSum+1:])) {
		return r, errNoRecord
	}
	if err := json.Unmarshal(line[spoolSum+1:], &r); err != nil {
		return spooled{}, fmt.Errorf("%w: %w", errNoRecord, err)
	}
	return r, nil
}

// readSpool calls f for each record, with the length of its line. It returns the end of the last one, and how many lines are no
// records. What has no line feed was cut by a kill. It reads no more than most bytes.
func readSpool(file io.Reader, most int64, f func(spooled, int) error) (end int64, bad int, err error) {
	lines := bufio.NewReader(io.LimitReader(file, most))
	at := int64(0)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return end, bad, nil
		}
		if err != nil {
			return end, bad, err
		}
		at += int64(len(line))
		r, err := readSpooled(line[:len(line)-1])
		if err != nil {
			bad++
			continue
		}
		if err := f(r, len(line)); err != nil {
			return end, bad, err
		}
		end = at
	}
}
