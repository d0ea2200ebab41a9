package simserver

import (
	"math"
	"strconv"

	"github.com/stator-ai/stator/internal/openai"
)

// fields reads the members of a body and keeps the first error.
type fields struct {
	openai.Object
	err *apiError
}

func (f *fields) fail(e *apiError) {
	if f.err == nil {
		f.err = e
	}
}

// got describes a value in an error.
func got(v openai.Value) string {
	if v.Kind() == '0' && len(v) < 40 {
		return string(v)
	}
	return v.TypeName()
}

// boolean returns a member that is true or false, def when absent or null.
func (f *fields) boolean(key string, def bool) bool {
	v := f.Get(key)
	if !v.Present() {
		return def
	}
	if v.Kind() != 't' {
		f.fail(badField(key, "expected a boolean, got %s", got(v)))
	}
	return v.True()
}

// integer returns a whole number within bounds, or false when absent or null.
func (f *fields) integer(key string, lo, hi int64) (int64, bool) {
	v := f.Get(key)
	if !v.Present() {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if hi == math.MaxInt32 && n > hi {
		return hi, true // more than any context holds
	}
	switch {
	case v.Kind() == '0' && err == nil && n >= lo && n <= hi:
		return n, true
	case hi == math.MaxInt64 && lo == math.MinInt64:
		f.fail(badField(key, "expected an integer, got %s", got(v)))
	case hi >= math.MaxInt32:
		f.fail(badField(key, "expected an integer of at least %d, got %s", lo, got(v)))
	default:
		f.fail(badField(key, "expected an integer from %d to %d, got %s", lo, hi, got(v)))
	}
	return 0, false
}

// object returns a member that is an object, empty when absent or null.
func (f *fields) object(key string) fields {
	v := f.Get(key)
	if !v.Present() {
		return fields{}
	}
	if v.Kind() != '{' {
		f.fail(badField(key, "expected an object, got %s", got(v)))
		return fields{}
	}
	o, err := openai.ParseObject(v)
	if err != nil {
		f.fail(badField(key, "%v", err))
	}
	return fields{Object: o}
}

// stops reads stop, which is a string or a list of them.
func (f *fields) stops() []string {
	v := f.Get("stop")
	var out []string
	add := func(v openai.Value) bool {
		t, ok := v.Text()
		if !ok || t == "" {
			what := got(v)
			if ok {
				what = "an empty one"
			}
			f.fail(badField("stop", "expected a non-empty string or an array of them, got %s", what))
			return false
		}
		out = append(out, t)
		return true
	}
	switch {
	case !v.Present():
	case v.Kind() == '[':
		if err := v.Elements(add); err != nil {
			f.fail(badField("stop", "%v", err))
		}
	default:
		add(v)
	}
	return out
}
