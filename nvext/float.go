package nvext

import (
	"fmt"
	"math"
	"strconv"
)

// Float is a number that JSON shows to be one with a fraction: 30 is written
// 30.0. An exponent appears only from 1e16 up and below 1e-5. What is not a
// finite number is written as null, and null is read as NaN.
type Float float64

// MarshalJSON writes the shortest decimal that reads back as f.
func (f Float) MarshalJSON() ([]byte, error) { return f.append(nil), nil }

// UnmarshalJSON reads a JSON number, or null as NaN.
func (f *Float) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		*f = Float(math.NaN())
		return nil
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return fmt.Errorf("nvext: expected a number or null: %w", err)
	}
	*f = Float(v)
	return nil
}

func (f Float) append(dst []byte) []byte {
	v := float64(f)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(dst, "null"...)
	}
	if a := math.Abs(v); a >= 1e16 || a != 0 && a < 1e-5 {
		return strconv.AppendFloat(dst, v, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, v, 'f', -1, 64)
	for _, c := range dst[start:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}
