package thompson

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Level is a coarse size: of an answer's length, or of the time to the next request. The
// zero Level is what is assumed of what nobody said.
type Level uint8

// The levels.
const (
	Medium Level = iota
	Low
	High
	numLevels = 3
)

// String returns LOW, MEDIUM or HIGH.
func (l Level) String() string {
	switch l {
	case Low:
		return "LOW"
	case High:
		return "HIGH"
	}
	return "MEDIUM"
}

// Tokens returns a length of an answer that is of the level.
func (l Level) Tokens() int { return pick(l, 128, 512, 2048) }

// Gap returns a time between two requests that is of the level.
func (l Level) Gap() time.Duration {
	return pick(l, 50*time.Millisecond, 250*time.Millisecond, 750*time.Millisecond)
}

// decodeCost is what decoding an answer of the level counts.
func (l Level) decodeCost() float64 { return pick(l, 1.0, 2, 3) }

// eagerness is what requests that come at such intervals count: those that come fast gain
// most from staying where they are.
func (l Level) eagerness() float64 { return pick(l, 1.5, 1, 0.6) }

// known returns the level, or Medium for what is none.
func (l Level) known() Level { return pick(l, Low, Medium, High) }

func pick[T any](l Level, low, medium, high T) T {
	switch l {
	case Low:
		return low
	case High:
		return high
	}
	return medium
}

// OSL returns the level of an answer of so many tokens. What is no number is Medium.
func OSL(tokens float64) Level { return levelOf(tokens, 256, 1024) }

// IAT returns the level of so many milliseconds between two requests. What is no number
// is Medium.
func IAT(milliseconds float64) Level { return levelOf(milliseconds, 100, 500) }

func levelOf(v, medium, high float64) Level {
	switch {
	case v < medium:
		return Low
	case v >= high:
		return High
	}
	return Medium
}

// ParseOSL returns the level that s says in words, in any case, or as a number of tokens;
// Medium if it says neither.
func ParseOSL(s string) Level { return parseLevel(s, OSL) }

// ParseIAT returns the level that s says in words, in any case, or as a number of
// milliseconds; Medium if it says neither.
func ParseIAT(s string) Level { return parseLevel(s, IAT) }

func parseLevel(s string, of func(float64) Level) Level {
	s = strings.TrimSpace(s)
	for _, l := range [...]Level{Low, Medium, High} {
		if strings.EqualFold(s, l.String()) {
			return l
		}
	}
	if strings.ContainsAny(s, "xX") { // hexadecimal is for programs
		return Medium
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range is infinite
		return Medium
	}
	return of(v)
}

// ParseTotal returns the number of requests that s says, at least 1: that is also what
// anything but a whole number means.
func ParseTotal(s string) int {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 1
	}
	return int(min(max(n, 1), math.MaxInt32))
}

// Annotation returns the value of the first annotation for a key, as in "key:value", and
// whether there is one that is not empty. The value may contain colons.
func Annotation(annotations []string, key string) (string, bool) {
	for _, a := range annotations {
		if k, v, ok := strings.Cut(a, ":"); ok && k == key {
			return v, v != ""
		}
	}
	return "", false
}
