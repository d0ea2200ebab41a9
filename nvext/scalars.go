package nvext

import (
	"bytes"
	"fmt"
	"strconv"
)

// The decoder's readers of single fields. A typed reader fails on a wrong type;
// null is unset. Each takes the path of the enclosing object and builds the
// field's own only for a message.

func (d *decoder) fail(path, want string, raw []byte) {
	if d.err == nil {
		d.err = &FieldError{Path: path, Want: want, Got: describe(raw)}
	}
}

func (d *decoder) ignore(path, reason string) {
	d.ignored = append(d.ignored, Ignored{Path: path, Reason: reason})
}

func (d *decoder) object(path string, raw []byte) ([]field, bool) {
	if isNull(raw) {
		return nil, false
	}
	if raw[0] != '{' {
		d.fail(path, wantObject, raw)
		return nil, false
	}
	return fields(raw), true
}

// fields splits an object that has been scanned before.
func fields(raw []byte) []field {
	fs, _, err := splitObject(raw, 0)
	if err != nil {
		panic(fmt.Sprintf("nvext: scanned object does not split: %v", err))
	}
	return fs
}

// scalar reads one value with parse, or fails saying what was wanted.
func scalar[T any](d *decoder, path string, f field, want string, parse func([]byte) (T, bool)) *T {
	if isNull(f.value) {
		return nil
	}
	v, ok := parse(f.value)
	if !ok {
		d.fail(join(path, f.key), want, f.value)
		return nil
	}
	return &v
}

// list reads an array of scalars. The result is not nil unless the value is
// null or wrong.
func list[T any](d *decoder, path string, f field, want string, parse func([]byte) (T, bool)) []T {
	if isNull(f.value) {
		return nil
	}
	if f.value[0] != '[' {
		d.fail(join(path, f.key), wantArray, f.value)
		return nil
	}
	// One more than the commas is exact but for commas inside strings.
	vs := make([]T, 0, min(bytes.Count(f.value, []byte{','}), 4096)+1)
	i, good := 0, true
	_, _ = skipArray(f.value, 0, 0, func(raw []byte) {
		v, ok := parse(raw)
		if !ok && good {
			good = false
			d.fail(join(path, f.key)+"["+strconv.Itoa(i)+"]", want, raw)
		}
		if good {
			vs = append(vs, v)
		}
		i++
	})
	if !good {
		return nil
	}
	return vs
}

func (d *decoder) boolean(path string, f field) *bool {
	return scalar(d, path, f, wantBool, parseBool)
}

func (d *decoder) string(path string, f field) *string {
	return scalar(d, path, f, wantString, parseString)
}

func (d *decoder) int32(path string, f field) *int32 {
	return scalar(d, path, f, wantInt32, parseInt32)
}

func (d *decoder) uint32(path string, f field) *uint32 {
	return scalar(d, path, f, wantUint32, parseUint32)
}

func (d *decoder) uint64(path string, f field) *uint64 {
	return scalar(d, path, f, wantUint64, parseUint64[[]byte])
}

func (d *decoder) float64(path string, f field) *float64 {
	return scalar(d, path, f, wantFloat64, parseFloat64)
}

func (d *decoder) strings(path string, f field) []string {
	return list(d, path, f, wantString, parseString)
}

func (d *decoder) uint32s(path string, f field) []uint32 {
	return list(d, path, f, wantUint32, parseUint32)
}

func (d *decoder) uint64s(path string, f field) []uint64 {
	return list(d, path, f, wantUint64, parseUint64[[]byte])
}

func parseBool(raw []byte) (v, ok bool) {
	switch raw[0] {
	case 't':
		return true, true
	case 'f':
		return false, true
	}
	return false, false
}

func parseString(raw []byte) (string, bool) {
	if raw[0] != '"' {
		return "", false
	}
	return unquote(raw), true
}

func parseUint32(raw []byte) (uint32, bool) {
	v, ok := parseUint64(raw)
	return uint32(v), ok && v <= 1<<32-1
}

// hintString is a string that is dropped, not refused, when it is not one.
func (d *decoder) hintString(path string, f field) *string {
	if isNull(f.value) {
		return nil
	}
	s, ok := parseString(f.value)
	if !ok {
		d.ignore(join(path, f.key), reasonNotString)
		return nil
	}
	return &s
}

func (d *decoder) prefixID(path string, f field) *string {
	s := d.hintString(path, f)
	switch {
	case s == nil:
		return nil
	case *s == "":
		d.ignore(join(path, f.key), reasonEmptyID)
		return nil
	case len(*s) > MaxIDBytes:
		d.ignore(join(path, f.key), reasonLongID)
		return nil
	}
	return s
}

func (d *decoder) totalRequests(path string, f field) *uint64 {
	if isNull(f.value) {
		return nil
	}
	if s, ok := text(f.value); ok {
		if v, ok := parseTotal(s); ok {
			return &v
		}
	}
	d.ignore(join(path, f.key), reasonNotCount)
	return nil
}

func (d *decoder) outputLength(path string, f field) *uint32 {
	v := d.level(path, f, tokenLevels)
	if v == nil {
		return nil
	}
	return new(clampUint32(*v))
}

func (d *decoder) interArrival(path string, f field) *uint64 {
	return d.level(path, f, millisLevels)
}

func (d *decoder) level(path string, f field, l levels) *uint64 {
	if isNull(f.value) {
		return nil
	}
	if s, ok := text(f.value); ok {
		if v, ok := l.parse(s); ok {
			return &v
		}
	}
	d.ignore(join(path, f.key), reasonNotNumber)
	return nil
}

// annotations are the strings of a list. The others are noted once, however many
// there are.
func (d *decoder) annotations(path string, f field) []string {
	if isNull(f.value) {
		return nil
	}
	if f.value[0] != '[' {
		d.ignore(join(path, f.key), reasonNotArray)
		return nil
	}
	list, good := []string{}, true
	_, _ = skipArray(f.value, 0, 0, func(raw []byte) {
		if s, ok := parseString(raw); ok {
			list = append(list, s)
		} else {
			good = false
		}
	})
	if !good {
		d.ignore(join(path, f.key), reasonNotString)
	}
	return list
}
