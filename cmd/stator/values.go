package main

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator"
)

// The settings are the fields of stator.Config; a setting's key is the path of
// its koanf tags. What is known about a key comes from the struct, so that the
// file, the environment, the flags and the printed configuration agree.

var (
	configType   = reflect.TypeFor[stator.Config]()
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[stator.Size]()
)

// fieldNamed returns the field of the struct type t with the given tag.
func fieldNamed(t reflect.Type, tag string) (reflect.StructField, bool) {
	for f := range fields(t) {
		if f.Tag.Get("koanf") == tag {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func fields(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// settingType returns the type of a key such as "router.mode". The key has to
// exist: keys that are written in this program are checked by its tests.
func settingType(key string) reflect.Type {
	t := configType
	for name := range strings.SplitSeq(key, ".") {
		f, ok := fieldNamed(t, name)
		if !ok {
			panic("no setting " + key)
		}
		t = f.Type
	}
	return t
}

// defaultText returns the default of a key as text; empty if it has none.
func defaultText(key string) string {
	v := reflect.ValueOf(stator.DefaultConfig())
	for name := range strings.SplitSeq(key, ".") {
		f, _ := fieldNamed(v.Type(), name)
		v = v.FieldByIndex(f.Index)
	}
	if v.IsZero() {
		return ""
	}
	return formatValue(v)
}

// parseValue reads the text of a scalar setting and returns a value of type t,
// or nil for a pointer that is not set. Errors say what was expected.
func parseValue(t reflect.Type, text string) (any, error) {
	switch t {
	case durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("expected a duration such as 30s, got %q", text)
		}
		return d, nil
	case sizeType:
		return stator.ParseSize(text)
	}
	switch t.Kind() {
	case reflect.String:
		return text, nil
	case reflect.Bool:
		return parseBool(text)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("expected a whole number, got %q", text)
		}
		return n, nil
	case reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("expected a whole number of at least 0, got %q", text)
		}
		return n, nil
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("expected a number, got %q", text)
		}
		return f, nil
	case reflect.Pointer:
		switch strings.ToLower(text) {
		case "none", "null", "~", "":
			return nil, nil
		}
		return parseValue(t.Elem(), text)
	default:
		panic("no scalar: " + t.String())
	}
}

func parseBool(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, fmt.Errorf("expected true or false, got %q", text)
	}
	return text == "true", nil
}

// formatValue returns the text of a scalar setting; parseValue reads it back.
func formatValue(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "null"
		}
		return formatValue(v.Elem())
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return formatDuration(x)
	case fmt.Stringer:
		return x.String()
	}
	if v.Kind() == reflect.Float64 {
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	}
	return fmt.Sprint(v.Interface())
}

// formatDuration drops the zero units that time.Duration prints: 10m, not 10m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
