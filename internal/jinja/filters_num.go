package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

func filterAbs(_ *state, v Value, _ []Value) (Value, error) {
	switch x := v.(type) {
	case float64:
		return math.Abs(x), nil
	case Undefined:
		return nil, x.err()
	}
	n, ok := asBig(v)
	if !ok {
		return nil, errorf("bad operand type for abs(): %s", typeName(v))
	}
	return normInt(new(big.Int).Abs(n)), nil
}

// filterInt is v|int(default, base).
func filterInt(_ *state, v Value, a []Value) (Value, error) {
	if s, ok := asString(v); ok {
		if base, err := asCount(arg(a[1], int64(10))); err == nil {
			if n, ok := parseInt(s, base); ok {
				return n, nil
			}
		}
		if f, ok := floatString(s); ok {
			if n, err := truncate(f); err == nil {
				return n, nil
			}
		}
		return arg(a[0], int64(0)), nil
	}
	switch x := v.(type) {
	case Undefined:
		return nil, x.err()
	case float64:
		if math.IsNaN(x) {
			return arg(a[0], int64(0)), nil
		}
		return truncate(x)
	}
	if n, ok := asBig(v); ok {
		return normInt(n), nil
	}
	return arg(a[0], int64(0)), nil
}

// truncate is Python's int(f).
func truncate(f float64) (Value, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, errorf("cannot convert float %s to integer", appendFloat(nil, f))
	}
	n, _ := new(big.Float).SetFloat64(f).Int(nil)
	return normInt(n), nil
}

// asciiDigits replaces the decimal digits of all scripts by those of ASCII, and
// whitespace at the ends by nothing, as Python does before it reads a number.
func asciiDigits(s string) string {
	s = trimSpace(s)
	if isASCII(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r >= 0x80 && unicode.Is(unicode.Nd, r) {
			return '0' + r - zeroOf(r)
		}
		return r
	}, s)
}

// zeroOf returns the zero of the digits that r is among. Ranges of digits begin
// with a zero and hold tens.
func zeroOf(r rune) rune {
	for _, rg := range unicode.Nd.R16 {
		if rune(rg.Lo) <= r && r <= rune(rg.Hi) {
			return rune(rg.Lo) + (r-rune(rg.Lo))/10*10
		}
	}
	for _, rg := range unicode.Nd.R32 {
		if rune(rg.Lo) <= r && r <= rune(rg.Hi) {
			return rune(rg.Lo) + (r-rune(rg.Lo))/10*10
		}
	}
	return r
}

// parseInt is Python's int(s, base).
func parseInt(s string, base int) (Value, bool) {
	if base != 0 && (base < 2 || base > 36) {
		return nil, false
	}
	s = asciiDigits(s)
	neg := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		s = s[1:]
	}
	if len(s) > 1 && s[0] == '0' {
		prefix := map[byte]int{'b': 2, 'o': 8, 'x': 16}[s[1]|0x20]
		if prefix != 0 && (base == prefix || base == 0) {
			base = prefix
			s = strings.TrimPrefix(s[2:], "_")
		}
	}
	if base == 0 {
		if len(s) > 1 && s[0] == '0' && strings.Trim(s, "0_") != "" {
			return nil, false
		}
		base = 10
	}
	if s == "" || s[0] == '_' || s[len(s)-1] == '_' || strings.Contains(s, "__") || s[0] == '+' || s[0] == '-' {
		return nil, false
	}
	s = strings.ReplaceAll(s, "_", "")
	if len(s) > maxIntDigits {
		return nil, false
	}
	n, ok := new(big.Int).SetString(s, base)
	if !ok {
		return nil, false
	}
	if neg {
		n.Neg(n)
	}
	return normInt(n), true
}

// floatString is Python's float(s).
func floatString(s string) (float64, bool) {
	s = asciiDigits(s)
	body := strings.ToLower(strings.TrimLeft(s, "+-"))
	if len(s)-len(body) > 1 {
		return 0, false
	}
	switch body {
	case "inf", "infinity", "nan":
		f, err := strconv.ParseFloat(s, 64)
		return f, err == nil
	}
	for i := range len(body) {
		switch c := body[i]; {
		case isDigit(c), c == '.', c == 'e', c == '+', c == '-':
		case c == '_':
			if i == 0 || i == len(body)-1 || !isDigit(body[i-1]) || !isDigit(body[i+1]) {
				return 0, false
			}
		default:
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// parseFloat is Python's float(v).
func parseFloat(v Value) (float64, error) {
	if s, ok := asString(v); ok {
		if f, ok := floatString(s); ok {
			return f, nil
		}
		return 0, errorf("could not convert string to float: %s", repr(s))
	}
	f, ok, err := toFloat(v)
	if err == nil && !ok {
		if u, ok := v.(Undefined); ok {
			return 0, u.err()
		}
		err = errorf("%s cannot be converted to a float", typeName(v))
	}
	return f, err
}

func filterFloat(_ *state, v Value, a []Value) (Value, error) {
	if s, ok := asString(v); ok {
		if f, ok := floatString(s); ok {
			return f, nil
		}
		return arg(a[0], 0.0), nil
	}
	f, ok, err := toFloat(v)
	if err != nil || ok {
		return f, err
	}
	if u, ok := v.(Undefined); ok {
		return nil, u.err()
	}
	return arg(a[0], 0.0), nil
}

func filterRound(st *state, v Value, a []Value) (Value, error) {
	how, _ := asString(arg(a[1], "common"))
	switch how {
	case "common":
		return roundTo(v, arg(a[0], int64(0)))
	case "ceil", "floor":
	default:
		return nil, errorf("filter 'round' expects the method common, ceil or floor")
	}
	scale, err := binary(st, "**", int64(10), arg(a[0], int64(0)))
	if err != nil {
		return nil, err
	}
	scaled, err := binary(st, "*", v, scale)
	if err != nil {
		return nil, err
	}
	if f, ok := scaled.(float64); ok {
		if how == "ceil" {
			f = math.Ceil(f)
		} else {
			f = math.Floor(f)
		}
		if scaled, err = truncate(f); err != nil {
			return nil, err
		}
	} else if _, ok := asBig(scaled); !ok {
		return nil, errorf("filter 'round' expects a number, not %s", typeName(v))
	}
	return binary(st, "/", scaled, scale)
}

// roundTo is Python's round(v, digits): half to even, of the exact value.
func roundTo(v, digits Value) (Value, error) {
	if u, ok := v.(Undefined); ok {
		return nil, u.err()
	}
	if n, ok := asBig(v); ok {
		if digits == nil {
			return normInt(n), nil
		}
		d, err := asCount(digits)
		if err != nil || d >= 0 {
			return normInt(n), err
		}
		return roundInt(n, -d), nil
	}
	f, ok := v.(float64)
	if !ok {
		return nil, errorf("filter 'round' expects a number, not %s", typeName(v))
	}
	if digits == nil {
		return truncate(math.RoundToEven(f))
	}
	d, err := asCount(digits)
	if err != nil {
		return nil, err
	}
	switch {
	case math.IsInf(f, 0) || math.IsNaN(f) || d > 323:
		return f, nil
	case d < -308:
		return math.Copysign(0, f), nil
	case d >= 0:
		r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', d, 64), 64)
		if err != nil {
			return nil, errorf("rounded value too large to represent")
		}
		return r, nil
	}
	// Round the integer part; what is behind the point matters for ties only.
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-d)), nil)
	x := new(big.Rat).SetFloat64(math.Abs(f))
	x.Quo(x, new(big.Rat).SetInt(unit))
	q, m := new(big.Int).QuoRem(x.Num(), x.Denom(), new(big.Int))
	if c := m.Lsh(m, 1).Cmp(x.Denom()); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(1))
	}
	r, _ := new(big.Float).SetInt(q.Mul(q, unit)).Float64()
	if math.IsInf(r, 0) {
		return nil, errorf("rounded value too large to represent")
	}
	return math.Copysign(r, f), nil
}

// roundInt rounds n to a multiple of 10 to the power of d, half to even.
func roundInt(n *big.Int, d int) Value {
	if d > maxIntDigits {
		return int64(0)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d)), nil)
	q, m := new(big.Int).DivMod(n, unit, new(big.Int))
	if c := m.Lsh(m, 1).Cmp(unit); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(1))
	}
	return normInt(q.Mul(q, unit))
}
