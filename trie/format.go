package trie

import (
	"bytes"
	"encoding/csv"
	"errors"
	"slices"
)

// Format is what a file of runs is written in.
type Format string

const (
	// FormatUnknown is none of the others.
	FormatUnknown Format = ""
	// FormatNAT is what [ReadNAT] reads.
	FormatNAT Format = "nat"
	// FormatNATCSV is what [ReadNATCSV] reads.
	FormatNATCSV Format = "nat-csv"
	// FormatSpans is what [ReadSpans] reads.
	FormatSpans Format = "spans"
)

// Sniff tells by its beginning what a file is written in. A few hundred bytes are enough
// for what the programs write that these formats are of; a file that ends within head can
// be shorter.
func Sniff(head []byte) Format {
	j := newJSONReader(bytes.NewReader(head))
	c, err := j.kind()
	if err != nil {
		return FormatUnknown
	}
	found := FormatUnknown
	switch c {
	case '{':
		_ = j.sniff(&found) // head may end anywhere
	case '[':
		_ = j.array(func(int) error { return j.sniff(&found) })
		switch {
		case found == FormatSpans: // which are lines
			found = FormatUnknown
		case bytes.Equal(bytes.TrimSpace(head), []byte("[]")):
			found = FormatNAT
		}
	default:
		line, _, _ := bytes.Cut(bytes.TrimPrefix(head, []byte("\ufeff")), []byte("\n"))
		header, err := csv.NewReader(bytes.NewReader(line)).Read()
		if err == nil && slices.Contains(header, "event_type") {
			found = FormatNATCSV
		}
	}
	return found
}

// sniff reads an object as far as what it is can be told.
func (j *jsonReader) sniff(found *Format) error {
	return j.object(func(member []byte) error {
		switch string(member) {
		case "intermediate_steps", "request_number":
			*found = FormatNAT
		case "run_id", "span_id":
			*found = FormatSpans
		default:
			return j.skip()
		}
		return errFound
	})
}

var errFound = errors.New("found")
