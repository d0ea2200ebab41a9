package collect

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

var durationParts = regexp.MustCompile(`^(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?$`)

var durationUnits = []time.Duration{
	365 * 24 * time.Hour, 7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second, time.Millisecond,
}

// ParseDuration reads a duration as PromQL has it between brackets: whole numbers with
// the units y, w, d, h, m, s and ms, each at most once and in this order, and more than
// nothing in all.
func ParseDuration(text string) (time.Duration, error) {
	wrong := fmt.Errorf("expected a duration such as 30s or 1m30s, got %q", text)
	parts := durationParts.FindStringSubmatch(text)
	if parts == nil {
		return 0, wrong
	}
	var sum time.Duration
	for i, part := range parts[1:] {
		if part == "" {
			continue
		}
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n > int64((math.MaxInt64-sum)/durationUnits[i]) {
			return 0, wrong
		}
		sum += time.Duration(n) * durationUnits[i]
	}
	if sum <= 0 {
		return 0, wrong
	}
	return sum, nil
}

// formatDuration writes a duration for PromQL, to the millisecond.
func formatDuration(d time.Duration) string {
	ms := d.Milliseconds()
	if ms%1000 == 0 {
		return strconv.FormatInt(ms/1000, 10) + "s"
	}
	return strconv.FormatInt(ms, 10) + "ms"
}

// spoken writes a duration for people.
func spoken(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
