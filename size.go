package stator

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. As text it is an integer with an optional unit:
// "46000000", "45MiB", "1GB".
type Size int64

// units from large to small, so that String finds the largest that fits and a
// longer suffix is tried before a shorter one it ends in ("MB" before "B").
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

// ParseSize reads a size. The number is an integer and not negative.
func ParseSize(s string) (Size, error) {
	number, factor := strings.TrimSpace(s), int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, factor = strings.TrimRight(n, " "), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || strings.HasPrefix(number, "+") {
		return 0, fmt.Errorf("expected a size such as 45MiB, got %q", s)
	}
	if n > math.MaxInt64/factor {
		return 0, fmt.Errorf("size %q does not fit 64 bits", s)
	}
	return Size(n * factor), nil
}

// String returns the size in the largest binary unit that divides it, such as
// "45MiB"; [ParseSize] reads it back.
func (s Size) String() string {
	for _, u := range units {
		if strings.HasSuffix(u.name, "iB") && s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText implements [encoding.TextMarshaler] with String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParseSize].
func (s *Size) UnmarshalText(text []byte) error {
	v, err := ParseSize(string(text))
	if err == nil {
		*s = v
	}
	return err
}
