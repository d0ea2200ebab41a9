package nvext

import (
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// CacheEphemeral is the only kind of retention known.
const CacheEphemeral = "ephemeral"

const (
	// DefaultTTL is the retention of a cache_control without a TTL.
	DefaultTTL = 5 * time.Minute
	// MaxTTL is the longest retention granted.
	MaxTTL = time.Hour
)

// TTLOptions changes how [ParseTTL] reads. The zero value is the default.
type TTLOptions struct {
	// MinSeconds raises shorter times to this many seconds, MaxTTL at most.
	MinSeconds uint32
	// Compat reads as the development server did that agents were first written
	// for: "5m", "1h" and bare seconds, everything else is five minutes, and
	// the result lies between five minutes and an hour. MinSeconds is unused.
	Compat bool
}

// ParseTTL reads a retention time: decimal digits followed by s, m or h, or by
// nothing for seconds, with white space around it allowed. The result is at
// most [MaxTTL], whatever the number. ok is false for anything else, and for
// zero, which retains nothing; with o.Compat it is always true.
func ParseTTL(s string, o TTLOptions) (d time.Duration, ok bool) {
	if o.Compat {
		return compatTTL(s), true
	}
	s = strings.TrimSpace(s)
	unit := time.Second
	if s != "" {
		switch s[len(s)-1] {
		case 's':
			s = s[:len(s)-1]
		case 'm':
			s, unit = s[:len(s)-1], time.Minute
		case 'h':
			s, unit = s[:len(s)-1], time.Hour
		}
	}
	n, ok := cappedUint(s, uint64(MaxTTL/unit))
	if !ok || n == 0 {
		return 0, false
	}
	floor := time.Duration(o.MinSeconds) * time.Second
	return min(max(time.Duration(n)*unit, floor), MaxTTL), true
}

func compatTTL(s string) time.Duration {
	switch s {
	case "5m":
		return 5 * time.Minute
	case "1h":
		return time.Hour
	}
	n, ok := parseUint64(s)
	if !ok {
		return DefaultTTL
	}
	n = min(n, uint64(MaxTTL/time.Second))
	return max(time.Duration(n)*time.Second, DefaultTTL)
}

// cappedUint reads decimal digits; a number above most, of any length, is most.
func cappedUint(s string, most uint64) (n uint64, ok bool) {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
		n = min(n*10+uint64(s[i]-'0'), most)
	}
	return n, s != ""
}

// TTL is the retention that covers all expected calls of a prefix: their number
// times the time between them, rounded up to whole seconds, at least one
// second. It saturates at the largest whole number of seconds a Duration holds.
func TTL(totalRequests, iatMS uint64) time.Duration {
	const most = uint64((1<<63 - 1) / time.Second)
	hi, ms := bits.Mul64(totalRequests, iatMS)
	s := most
	if hi == 0 {
		s = ms / 1000
		if ms%1000 != 0 {
			s++
		}
		s = min(max(s, 1), most)
	}
	return time.Duration(s) * time.Second
}

// FormatTTL writes d as cache_control takes it: whole minutes as "2m",
// otherwise seconds rounded up as "90s", at least "1s".
func FormatTTL(d time.Duration) string {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	s = max(s, 1)
	if s >= 60 && s%60 == 0 {
		return strconv.FormatInt(s/60, 10) + "m"
	}
	return strconv.FormatInt(s, 10) + "s"
}

// Retention is how long to keep the request's prompt blocks; ok is false when
// nothing is asked for: c is nil, its type is not [CacheEphemeral], or its TTL
// makes no sense. Without a TTL it is [DefaultTTL].
func (c *CacheControl) Retention(o TTLOptions) (d time.Duration, ok bool) {
	if c == nil || c.Type == nil || *c.Type != CacheEphemeral {
		return 0, false
	}
	if c.TTL == nil {
		return DefaultTTL, true
	}
	return ParseTTL(*c.TTL, o)
}
