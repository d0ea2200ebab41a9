package nvext

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseTTL(t *testing.T) {
	tests := []struct {
		in   string
		o    TTLOptions
		want time.Duration // 0: not ok
	}{
		{in: "90s", want: 90 * time.Second},
		{in: "2m", want: 2 * time.Minute},
		{in: "2h", want: time.Hour},
		{in: "1s", want: time.Second},
		{in: "3s", want: 3 * time.Second},
		{in: "5m", want: 5 * time.Minute},
		{in: "60m", want: time.Hour},
		{in: "61m", want: time.Hour},
		{in: "1h", want: time.Hour},
		{in: "600", want: 10 * time.Minute},
		{in: "10", want: 10 * time.Second},
		{in: "7200", want: time.Hour},
		{in: "3600", want: time.Hour},
		{in: " 90s ", want: 90 * time.Second},
		{in: "007s", want: 7 * time.Second},
		{in: strings.Repeat("9", 400) + "h", want: time.Hour},
		{in: "18446744073709551617s", want: time.Hour}, // 1 if it wrapped
		{in: "307445734561825861m", want: time.Hour},   // likewise, in nanoseconds
		{in: ""}, {in: "s"}, {in: "m"}, {in: "forever"}, {in: "-5s"}, {in: "+5s"}, {in: "1.5m"}, {in: "1h30m"},
		{in: "5 m"}, {in: "5M"}, {in: "5ms"}, {in: "0"}, {in: "0s"}, {in: "0x10"}, {in: "٣s"},
		{in: "10", o: TTLOptions{MinSeconds: 300}, want: 5 * time.Minute},
		{in: "20m", o: TTLOptions{MinSeconds: 300}, want: 20 * time.Minute},
		{in: "10", o: TTLOptions{MinSeconds: math.MaxUint32}, want: time.Hour},
		{in: "0", o: TTLOptions{MinSeconds: 300}},
	}
	for _, tt := range tests {
		got, ok := ParseTTL(tt.in, tt.o)
		if got != tt.want || ok != (tt.want != 0) {
			t.Errorf("ParseTTL(%.30q, %+v) = %v, %t, want %v", tt.in, tt.o, got, ok, tt.want)
		}
	}
}

// What the development server made of a TTL.
func TestParseTTLCompat(t *testing.T) {
	for in, want := range map[string]int{
		"": 300, "5m": 300, "1h": 3600, "600": 600, "10": 300, "7200": 3600, "forever": 300,
		"2m": 300, "90s": 300, "0": 300, "99999999999999999999": 300, "18446744073709551615": 3600,
	} {
		got, ok := ParseTTL(in, TTLOptions{Compat: true, MinSeconds: 900})
		if got != time.Duration(want)*time.Second || !ok {
			t.Errorf("ParseTTL(%q, compat) = %v, %t, want %ds", in, got, ok, want)
		}
	}
}

// What an agent toolkit sends for so many calls so far apart.
func TestTTL(t *testing.T) {
	tests := []struct {
		total, iat uint64
		want       string
	}{
		{10, 250, "3s"}, {40, 3000, "2m"}, {1, 90000, "90s"},
		{1, 1, "1s"}, {3, 500, "2s"}, {7, 250, "2s"}, {25, 50, "2s"}, {50, 1000, "50s"}, {1, 59999, "1m"},
		{50, 1200, "1m"}, {10, 6001, "61s"}, {9, 10000, "90s"}, {12, 10000, "2m"}, {60, 60000, "60m"},
		{0, 0, "1s"}, {0, 5, "1s"}, {1, 1000, "1s"}, {1, 1001, "2s"}, {1, 3600000, "60m"},
		{math.MaxUint64, 1, "9223372036s"},
		{math.MaxUint64, math.MaxUint64, "9223372036s"},
		{1 << 32, 1 << 32, "9223372036s"}, // 2^64, 0 if it wrapped
	}
	for _, tt := range tests {
		d := TTL(tt.total, tt.iat)
		if got := FormatTTL(d); got != tt.want {
			t.Errorf("TTL(%d, %d) = %v, written %s, want %s", tt.total, tt.iat, d, got, tt.want)
		}
		if back, ok := ParseTTL(FormatTTL(d), TTLOptions{}); !ok || back != min(d, MaxTTL) {
			t.Errorf("ParseTTL(%s) = %v, %t, want %v", FormatTTL(d), back, ok, min(d, MaxTTL))
		}
	}
}

func TestFormatTTL(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "1s", 0: "1s", 1: "1s", time.Second: "1s", time.Second + 1: "2s",
		59*time.Second + 1: "1m", time.Minute: "1m", 61 * time.Second: "61s", 2 * time.Hour: "120m",
		math.MaxInt64: "9223372037s",
	} {
		if got := FormatTTL(d); got != want {
			t.Errorf("FormatTTL(%d) = %s, want %s", d, got, want)
		}
	}
}

func TestRetention(t *testing.T) {
	eph, other := new("ephemeral"), new("eternal")
	tests := []struct {
		name string
		c    *CacheControl
		o    TTLOptions
		want time.Duration // 0: nothing asked for
	}{
		{name: "nil"},
		{name: "no type", c: &CacheControl{TTL: new("1m")}},
		{name: "unknown type", c: &CacheControl{Type: other, TTL: new("1m")}},
		{name: "no ttl", c: &CacheControl{Type: eph}, want: DefaultTTL},
		{name: "ttl", c: &CacheControl{Type: eph, TTL: new("3s")}, want: 3 * time.Second},
		{name: "ttl, floor", c: &CacheControl{Type: eph, TTL: new("3s")}, o: TTLOptions{MinSeconds: 5}, want: 5 * time.Second},
		{name: "odd ttl", c: &CacheControl{Type: eph, TTL: new("soon")}},
		{name: "odd ttl, compat", c: &CacheControl{Type: eph, TTL: new("soon")}, o: TTLOptions{Compat: true}, want: DefaultTTL},
	}
	for _, tt := range tests {
		if got, ok := tt.c.Retention(tt.o); got != tt.want || ok != (tt.want != 0) {
			t.Errorf("%s: %v, %t, want %v", tt.name, got, ok, tt.want)
		}
	}
}
