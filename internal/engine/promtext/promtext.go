// Package promtext reads the text in which engines publish their metrics.
//
// It reads samples and nothing else: no types, help or histograms as a whole, which
// need a library that brings protocol buffers along. Labels are a map, because their
// order and number change from one release of an engine to the next. A line that
// cannot be read is skipped.
package promtext

import (
	"bytes"
	"iter"
	"strconv"
	"strings"
)

// Sample is one line of the text.
type Sample struct {
	Name   string
	Labels map[string]string // nil if there are none
	Value  float64           // NaN and infinities as they are written
}

// maxLabels bounds the labels of one sample.
const maxLabels = 256

// Samples returns the samples whose names are in names, in the order of the text; nil
// names mean all. Other lines cost a look at their name.
func Samples(text []byte, names map[string]bool) iter.Seq[Sample] {
	return func(yield func(Sample) bool) {
		for line := range bytes.Lines(text) {
			line = bytes.TrimSpace(line)
			end := bytes.IndexAny(line, "{ \t")
			if end <= 0 || line[0] == '#' {
				continue
			}
			if names != nil && !names[string(line[:end])] {
				continue
			}
			if s, ok := parse(line, end); ok && !yield(s) {
				return
			}
		}
	}
}

// parse reads a line whose name ends at end.
func parse(line []byte, end int) (Sample, bool) {
	s := Sample{Name: string(line[:end])}
	rest := line[end:]
	if rest[0] == '{' {
		var ok bool
		if s.Labels, rest, ok = parseLabels(rest[1:]); !ok {
			return s, false
		}
	}
	// A time or an exemplar may follow.
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return s, false
	}
	v, err := strconv.ParseFloat(string(fields[0]), 64)
	s.Value = v
	return s, err == nil
}

// parseLabels reads labels up to their closing brace and returns what follows it.
func parseLabels(b []byte) (labels map[string]string, rest []byte, ok bool) {
	labels = make(map[string]string)
	for {
		b = bytes.TrimLeft(b, " \t,")
		if len(b) > 0 && b[0] == '}' {
			return labels, b[1:], true
		}
		name, value, found := bytes.Cut(b, []byte("="))
		value = bytes.TrimLeft(value, " \t")
		if !found || len(value) == 0 || value[0] != '"' || len(labels) == maxLabels {
			return nil, nil, false
		}
		text, after, closed := unquote(value[1:])
		if !closed {
			return nil, nil, false
		}
		labels[string(bytes.TrimSpace(name))] = text
		b = after
	}
}

// unquote reads a value up to its closing quote.
func unquote(b []byte) (text string, rest []byte, ok bool) {
	var out strings.Builder
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return out.String(), b[i+1:], true
		case c != '\\' || i+1 == len(b):
			out.WriteByte(c)
		default:
			i++
			if b[i] == 'n' {
				out.WriteByte('\n')
			} else {
				out.WriteByte(b[i])
			}
		}
	}
	return "", nil, false
}
