package simengine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Table is a timing read from measurements on a grid. The prefill time lies on
// straight lines between the points measured; the decode time is bilinear in the
// tokens of context of the batch and their mean per request, rounded down. Beyond
// the grid its outermost cells go on, but no time is negative or above
// 1,000,000 s. A Table does not change, is safe for concurrent use, and computes
// a time without allocating.
type Table struct {
	promptTokens axis
	prefill      []float64 // ms, one for each of promptTokens

	kvTokens, meanContext axis
	decode                []float64 // ms, a row for each of kvTokens
}

// The arrays of a profile.
const (
	prefillTokensArray = "prefill_isl"
	prefillTimeArray   = "prefill_ttft_ms"
	decodeTokensArray  = "decode_active_kv_tokens"
	decodeContextArray = "decode_context_length"
	decodeTimeArray    = "decode_itl"
)

func isTableArray(name string) bool {
	switch name {
	case prefillTokensArray, prefillTimeArray, decodeTokensArray, decodeContextArray, decodeTimeArray:
		return true
	}
	return false
}

// What a profile may hold. With the bounds on numbers no time between or beyond
// them is infinite; the bounds on sizes are far above any measurement and keep a
// wrong file from taking up memory.
const (
	maxTime      = 1e9  // ms
	maxTokens    = 1e15 // on an axis
	minStep      = 1e-6 // tokens between two points of an axis
	maxValues    = 1 << 18
	maxTableSize = 16 << 20 // bytes
)

// ParseTable reads a profile, either a JSON object or an NPZ archive as NumPy
// writes it, with five arrays:
//
//   - prefill_isl: prompt tokens computed in a pass
//   - prefill_ttft_ms: the milliseconds this takes, one for each of prefill_isl
//   - decode_active_kv_tokens: tokens of context of a batch
//   - decode_context_length: mean tokens of context per request
//   - decode_itl: the milliseconds of a decode step, a row for each of
//     decode_active_kv_tokens with a column for each of decode_context_length, or
//     all rows one after the other in one dimension
//
// An axis has at least two points, which increase. JSON may have no other members.
// NPZ may have other arrays, which are not read; its five are little-endian
// integers or floats of 4 or 8 bytes in C order. The error names the array and what
// was expected of it. The table keeps nothing of data.
func ParseTable(data []byte) (*Table, error) {
	arrays, err := parseArrays(data)
	if err != nil {
		return nil, fmt.Errorf("simengine: table: %w", err)
	}
	t, err := newTable(arrays)
	if err != nil {
		return nil, fmt.Errorf("simengine: table: %w", err)
	}
	return t, nil
}

// array is an array as a file has it: values row by row, with one or two
// dimensions.
type array struct {
	name   string
	shape  []int
	values []float64
}

// size returns the shape in words.
func (a *array) size() string {
	if len(a.shape) == 1 {
		return fmt.Sprint(a.shape[0])
	}
	return fmt.Sprintf("%d×%d", a.shape[0], a.shape[1])
}

func parseArrays(data []byte) (map[string]*array, error) {
	if len(data) > maxTableSize {
		return nil, fmt.Errorf("expected at most %d bytes, got %d", maxTableSize, len(data))
	}
	if bytes.HasPrefix(data, []byte("PK")) {
		return parseNPZ(data)
	}
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return parseJSON(data)
	}
	return nil, errors.New("expected a JSON object or an NPZ archive")
}

// newTable checks that the arrays make a table.
func newTable(arrays map[string]*array) (*Table, error) {
	var missing []string
	for _, name := range []string{prefillTokensArray, prefillTimeArray, decodeTokensArray, decodeContextArray, decodeTimeArray} {
		if arrays[name] == nil {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("%s: expected, not found", strings.Join(missing, ", "))
	}
	var t Table
	var err error
	if t.promptTokens, err = newAxis(arrays[prefillTokensArray]); err != nil {
		return nil, err
	}
	if t.kvTokens, err = newAxis(arrays[decodeTokensArray]); err != nil {
		return nil, err
	}
	if t.meanContext, err = newAxis(arrays[decodeContextArray]); err != nil {
		return nil, err
	}

	prefill := arrays[prefillTimeArray]
	if len(prefill.shape) != 1 || prefill.shape[0] != len(t.promptTokens) {
		return nil, fmt.Errorf("%s: expected %d values, one for each of %s, got %s",
			prefill.name, len(t.promptTokens), prefillTokensArray, prefill.size())
	}
	decode := arrays[decodeTimeArray]
	rows, columns := len(t.kvTokens), len(t.meanContext)
	if !slices.Equal(decode.shape, []int{rows, columns}) && !slices.Equal(decode.shape, []int{rows * columns}) {
		return nil, fmt.Errorf("%s: expected %d×%d values, %s by %s, got %s",
			decode.name, rows, columns, decodeTokensArray, decodeContextArray, decode.size())
	}
	for _, a := range []*array{prefill, decode} {
		if err := checkTimes(a); err != nil {
			return nil, err
		}
	}
	t.prefill, t.decode = prefill.values, decode.values
	return &t, nil
}

// checkTimes checks that all values of an array are milliseconds.
func checkTimes(a *array) error {
	for i, v := range a.values {
		if v >= 0 && v <= maxTime {
			continue
		}
		at := fmt.Sprintf("%s[%d]", a.name, i)
		if len(a.shape) == 2 {
			at = fmt.Sprintf("%s[%d][%d]", a.name, i/a.shape[1], i%a.shape[1])
		}
		return fmt.Errorf("%s: expected milliseconds from 0 to %.0f, got %v", at, maxTime, v)
	}
	return nil
}

// Prefill implements Timing.
func (t *Table) Prefill(b *Batch) float64 {
	i, w := t.promptTokens.find(float64(b.NewTokens()))
	return clampTime(between(t.prefill[i], t.prefill[i+1], w))
}

// Decode implements Timing.
func (t *Table) Decode(b *Batch) float64 {
	i, w := t.kvTokens.find(float64(b.Context))
	j, v := t.meanContext.find(float64(b.Context / max(b.Decodes, 1)))
	columns := len(t.meanContext)
	low, high := t.decode[i*columns+j:], t.decode[(i+1)*columns+j:]
	return clampTime(between(between(low[0], low[1], v), between(high[0], high[1], v), w))
}

func clampTime(ms float64) float64 { return min(max(ms, 0), maxTime) }

// between returns the value at w on the line through a at 0 and b at 1. The
// conversion rounds the product, so that no machine fuses it with the sum and all
// get the same time.
func between(a, b, w float64) float64 { return a + float64(w*(b-a)) }

// axis is a list of increasing numbers, at least two.
type axis []float64

func newAxis(a *array) (axis, error) {
	if len(a.shape) != 1 {
		return nil, fmt.Errorf("%s: expected one dimension, got %s", a.name, a.size())
	}
	if len(a.values) < 2 {
		return nil, fmt.Errorf("%s: expected at least 2 values, got %d", a.name, len(a.values))
	}
	for i, v := range a.values {
		if !(v >= 0 && v <= maxTokens) {
			return nil, fmt.Errorf("%s[%d]: expected tokens from 0 to %.0f, got %v", a.name, i, maxTokens, v)
		}
		if i > 0 && v-a.values[i-1] < minStep {
			return nil, fmt.Errorf("%s[%d]: expected more than the value before, %v, got %v", a.name, i, a.values[i-1], v)
		}
	}
	return a.values, nil
}

// find returns the cell of x, between the points i and i+1, and where x lies in
// it: 0 at its lower end and 1 at its upper. A number outside belongs to the
// outermost cell.
func (a axis) find(x float64) (i int, w float64) {
	i, end := 0, len(a)-1
	for end-i > 1 {
		if mid := (i + end) / 2; x >= a[mid] {
			i = mid
		} else {
			end = mid
		}
	}
	return i, (x - a[i]) / (a[i+1] - a[i])
}

// parseJSON reads the arrays of a JSON object.
func parseJSON(data []byte) (map[string]*array, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // to tell a number that is too large by its text
	arrays := make(map[string]*array)
	var unknown []string
	if _, err := nextToken(dec); err != nil { // the brace
		return nil, err
	}
	for dec.More() {
		key, err := nextToken(dec)
		if err != nil {
			return nil, err
		}
		name := key.(string)
		if !isTableArray(name) {
			unknown = append(unknown, name)
			var skipped json.RawMessage
			if err := dec.Decode(&skipped); err != nil {
				return nil, fmt.Errorf("JSON, byte %d: %w", dec.InputOffset(), err)
			}
			continue
		}
		if arrays[name] != nil {
			return nil, fmt.Errorf("%s: expected once, got it again", name)
		}
		if arrays[name], err = readArray(dec, name); err != nil {
			return nil, err
		}
	}
	if _, err := nextToken(dec); err != nil { // the closing brace
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("JSON, byte %d: expected nothing after the object", dec.InputOffset())
	}
	if unknown != nil {
		return nil, fmt.Errorf("unknown members %.64q", unknown)
	}
	return arrays, nil
}

// readArray reads an array of numbers, or of equally long arrays of numbers.
func readArray(dec *json.Decoder, name string) (*array, error) {
	a := &array{name: name}
	var depth, rows, columns, start int // start is where the row began
	for {
		t, err := nextToken(dec)
		if err != nil {
			return nil, err
		}
		number, isNumber := t.(json.Number)
		switch {
		case t == json.Delim('[') && (depth == 0 || depth == 1 && (rows > 0 || len(a.values) == 0)):
			depth++
			start = len(a.values)
		case t == json.Delim(']') && depth == 2:
			n := len(a.values) - start
			if rows > 0 && n != columns {
				return nil, fmt.Errorf("%s[%d]: expected %d values like the row before, got %d", name, rows, columns, n)
			}
			depth, columns = 1, n
			rows++
		case t == json.Delim(']') && rows > 0:
			a.shape = []int{rows, columns}
			return a, nil
		case t == json.Delim(']'):
			a.shape = []int{len(a.values)}
			return a, nil
		case isNumber && (depth == 2 || depth == 1 && rows == 0):
			v, err := strconv.ParseFloat(number.String(), 64)
			if err != nil {
				return nil, fmt.Errorf("%s: expected numbers that a float can hold, got %.32s", name, number)
			}
			if len(a.values) == maxValues {
				return nil, fmt.Errorf("%s: expected at most %d values", name, maxValues)
			}
			a.values = append(a.values, v)
		case depth == 0:
			return nil, fmt.Errorf("%s: expected an array, got %s", name, describe(t))
		case depth == 2:
			return nil, fmt.Errorf("%s[%d][%d]: expected a number, got %s", name, rows, len(a.values)-start, describe(t))
		case rows > 0:
			return nil, fmt.Errorf("%s[%d]: expected an array like those before, got %s", name, rows, describe(t))
		default:
			return nil, fmt.Errorf("%s[%d]: expected a number, got %s", name, len(a.values), describe(t))
		}
	}
}

// nextToken returns the next token, of which there must be one.
func nextToken(dec *json.Decoder) (json.Token, error) {
	t, err := dec.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("JSON, byte %d: %w", dec.InputOffset(), err)
	}
	return t, nil
}

// describe says what kind of value a token begins.
func describe(t json.Token) string {
	switch t := t.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Delim:
		if t == '{' {
			return "an object"
		}
		return "an array"
	}
	return "a number"
}

var _ Timing = (*Table)(nil)
