package jinja

import (
	"math"
	"math/big"
	"math/bits"
)

// Integers are int64 where they fit and *big.Int where they do not. Bounds keep
// them small enough for arithmetic to stay cheap; Python itself refuses to print
// integers of more than maxIntDigits digits.
const (
	maxIntDigits = 4300
	maxIntBits   = 1 << 14
)

// normInt returns the Value of an integer.
func normInt(n *big.Int) Value {
	if n.IsInt64() {
		return n.Int64()
	}
	return n
}

// sizedInt is normInt for the result of arithmetic.
func sizedInt(n *big.Int) (Value, error) {
	if n.BitLen() > maxIntBits {
		return nil, &LimitError{What: "bits of an integer", Max: maxIntBits}
	}
	return normInt(n), nil
}

// asBig returns an int or bool as a big integer.
func asBig(v Value) (*big.Int, bool) {
	switch v := v.(type) {
	case int64:
		return big.NewInt(v), true
	case bool:
		if v {
			return big.NewInt(1), true
		}
		return new(big.Int), true
	case *big.Int:
		return v, true
	}
	return nil, false
}

// asInt64 returns an int or bool that fits.
func asInt64(v Value) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// asCount returns an int or bool argument for a size, clamped to what fits.
func asCount(v Value) (int, error) {
	n, ok := asBig(v)
	if !ok {
		return 0, notInt(v)
	}
	return int(clampInt64(n)), nil
}

func notInt(v Value) error {
	if u, ok := v.(Undefined); ok {
		return u.err()
	}
	return errorf("%s object cannot be interpreted as an integer", typeName(v))
}

func clampInt64(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// toFloat converts an int, bool or float as Python's float() does.
func toFloat(v Value) (float64, bool, error) {
	switch v := v.(type) {
	case float64:
		return v, true, nil
	case int64:
		return float64(v), true, nil
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			return 0, true, errorf("int too large to convert to float")
		}
		return f, true, nil
	case bool:
		if v {
			return 1, true, nil
		}
		return 0, true, nil
	}
	return 0, false, nil
}

func isWhole(f float64) bool { return f == math.Trunc(f) && !math.IsInf(f, 0) }

func negate(v Value) (Value, error) {
	switch v := v.(type) {
	case float64:
		return -v, nil
	case int64:
		if v != math.MinInt64 {
			return -v, nil
		}
	case Undefined:
		return nil, v.err()
	}
	if n, ok := asBig(v); ok {
		return normInt(new(big.Int).Neg(n)), nil
	}
	return nil, errorf("bad operand type for unary -: %s", typeName(v))
}

func positive(v Value) (Value, error) {
	switch v := v.(type) {
	case float64, int64, *big.Int:
		return v, nil
	case bool:
		n, _ := asInt64(v)
		return n, nil
	case Undefined:
		return nil, v.err()
	}
	return nil, errorf("bad operand type for unary +: %s", typeName(v))
}

// arith is the arithmetic of numbers; ok is false when an operand is none.
func arith(st *state, op string, l, r Value) (v Value, ok bool, err error) {
	if a, aok := asInt64(l); aok {
		if b, bok := asInt64(r); bok {
			if v, ok := smallInts(op, a, b); ok {
				return v, true, nil
			}
		}
	}
	if a, aok := asBig(l); aok {
		if b, bok := asBig(r); bok {
			v, err := bigInts(st, op, a, b)
			return v, true, err
		}
	}
	a, aok, err := toFloat(l)
	if !aok || err != nil {
		return nil, aok && err != nil, err
	}
	b, bok, err := toFloat(r)
	if !bok || err != nil {
		return nil, bok && err != nil, err
	}
	v, err = floats(op, a, b)
	return v, true, err
}

// smallInts computes what needs no care; ok is false for the rest.
func smallInts(op string, a, b int64) (Value, bool) {
	switch op {
	case "+":
		if c := a + b; (c > a) == (b > 0) {
			return c, true
		}
	case "-":
		if c := a - b; (c < a) == (b > 0) {
			return c, true
		}
	case "*":
		if hi, lo := bits.Mul64(absUint(a), absUint(b)); hi == 0 && lo <= math.MaxInt64 {
			return a * b, true
		}
	case "//", "%":
		if b == 0 || b == -1 {
			break
		}
		q, m := a/b, a%b
		if m != 0 && (m < 0) != (b < 0) {
			q--
			m += b
		}
		if op == "%" {
			return m, true
		}
		return q, true
	case "/":
		const exact = 1 << 53
		if b != 0 && -exact <= a && a <= exact && -exact <= b && b <= exact {
			return float64(a) / float64(b), true
		}
	}
	return nil, false
}

func absUint(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

func bigInts(st *state, op string, a, b *big.Int) (Value, error) {
	if err := st.step(1 + (a.BitLen()+b.BitLen())/16); err != nil {
		return nil, err
	}
	n := new(big.Int)
	switch op {
	case "+":
		return sizedInt(n.Add(a, b))
	case "-":
		return sizedInt(n.Sub(a, b))
	case "*":
		return sizedInt(n.Mul(a, b))
	case "**":
		return bigPow(st, a, b)
	}
	if b.Sign() == 0 {
		return nil, errorf("division by zero")
	}
	switch op {
	case "/":
		f, _ := new(big.Rat).SetFrac(a, b).Float64()
		if math.IsInf(f, 0) {
			return nil, errorf("integer division result too large for a float")
		}
		return f, nil
	}
	m := new(big.Int)
	n.QuoRem(a, b, m)
	if m.Sign() != 0 && (m.Sign() < 0) != (b.Sign() < 0) {
		n.Sub(n, big.NewInt(1))
		m.Add(m, b)
	}
	if op == "%" {
		return normInt(m), nil
	}
	return normInt(n), nil
}

func bigPow(st *state, a, b *big.Int) (Value, error) {
	if b.Sign() < 0 {
		x, _, err := toFloat(normInt(a))
		if err != nil {
			return nil, err
		}
		y, _, err := toFloat(normInt(b))
		if err != nil {
			return nil, err
		}
		return floats("**", x, y)
	}
	if a.BitLen() <= 1 { // -1, 0, 1
		switch {
		case b.Sign() == 0 || a.Sign() > 0 || a.Sign() < 0 && b.Bit(0) == 0:
			return int64(1), nil
		}
		return normInt(a), nil
	}
	if !b.IsInt64() || b.Int64() > maxIntBits || int64(a.BitLen()-1)*b.Int64() > maxIntBits {
		return nil, &LimitError{What: "bits of an integer", Max: maxIntBits}
	}
	if err := st.step(maxIntBits / 16); err != nil {
		return nil, err
	}
	return sizedInt(new(big.Int).Exp(a, b, nil))
}

func floats(op string, a, b float64) (Value, error) {
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "**":
		return floatPow(a, b)
	}
	if b == 0 {
		return nil, errorf("float division by zero")
	}
	if op == "/" {
		return a / b, nil
	}
	div, mod := floatDivmod(a, b)
	if op == "%" {
		return mod, nil
	}
	return div, nil
}

// floatDivmod is Python's divmod of floats: the remainder has the divisor's
// sign.
func floatDivmod(a, b float64) (div, mod float64) {
	mod = math.Mod(a, b)
	div = (a - mod) / b
	if mod != 0 {
		if (b < 0) != (mod < 0) {
			mod += b
			div--
		}
	} else {
		mod = math.Copysign(0, b)
	}
	if div == 0 {
		return math.Copysign(0, a/b), mod
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return floor, mod
}

func floatPow(a, b float64) (Value, error) {
	if a == 0 && b < 0 {
		return nil, errorf("0.0 cannot be raised to a negative power")
	}
	if a < 0 && !math.IsInf(a, 0) && !math.IsInf(b, 0) && b != math.Trunc(b) {
		return nil, errorf("a negative number cannot be raised to a fractional power: complex numbers are not supported")
	}
	f := math.Pow(a, b)
	if math.IsInf(f, 0) && !math.IsInf(a, 0) && !math.IsInf(b, 0) {
		return nil, errorf("numerical result out of range")
	}
	return f, nil
}
