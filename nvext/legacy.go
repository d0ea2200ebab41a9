package nvext

import (
	"math"
	"strconv"
	"strings"
)

// levels are the numbers that stand for the categories of an older client. Each
// lies well inside its category, so that a policy which sorts numbers into the
// same three classes gets back what the client said.
type levels struct{ low, medium, high uint64 }

var (
	tokenLevels       = levels{128, 512, 2048}
	millisLevels      = levels{50, 250, 750}
	sensitivityLevels = levels{1, 2, 3}
)

// category is the number for a category's name.
func (l levels) category(s string) (uint64, bool) {
	switch {
	case strings.EqualFold(s, "LOW"):
		return l.low, true
	case strings.EqualFold(s, "MEDIUM"):
		return l.medium, true
	case strings.EqualFold(s, "HIGH"):
		return l.high, true
	}
	return 0, false
}

// parse reads a category or a number. A fraction is cut off, which keeps a
// number in its category; a negative number is 0; one too large is the largest.
func (l levels) parse(s string) (uint64, bool) {
	if v, ok := l.category(s); ok {
		return v, true
	}
	if v, ok := parseUint64(s); ok {
		return v, true
	}
	v, ok := parseFinite(s)
	switch {
	case !ok:
		return 0, false
	case v <= 0:
		return 0, true
	case v >= 1<<64:
		return math.MaxUint64, true
	}
	return uint64(v), true
}

func parseFinite(s string) (float64, bool) {
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil && !math.IsInf(v, 0) && !math.IsNaN(v)
}

// parseTotal reads an integer number of requests, which may be written as a float.
// The one at hand is one of them, so less than 1 is 1; one too large is the largest.
func parseTotal(s string) (uint64, bool) {
	if v, ok := parseUint64(s); ok {
		return max(v, 1), true
	}
	v, ok := parseFinite(s)
	switch {
	case !ok || v != math.Trunc(v):
		return 0, false
	case v < 1:
		return 1, true
	case v >= 1<<64:
		return math.MaxUint64, true
	}
	return uint64(v), true
}

func clampUint32(v uint64) uint32 { return uint32(min(v, math.MaxUint32)) }

const pathAnnotations = "nvext.annotations"

// carried are the hints found in annotations: the first of each kind, trimmed.
type carried struct{ prefixID, total, osl, iat string }

func (e *NvExt) carried() (c carried) {
	if e == nil {
		return c
	}
	for _, a := range e.Annotations {
		key, value, ok := strings.Cut(a, ":")
		if !ok {
			continue
		}
		var dst *string
		switch key {
		case "prefix_id":
			dst = &c.prefixID
		case "total_requests":
			dst = &c.total
		case "osl":
			dst = &c.osl
		case "iat":
			dst = &c.iat
		default:
			continue
		}
		if *dst == "" {
			*dst = strings.TrimSpace(value)
		}
	}
	return c
}

// legacy fills what agent_hints does not say from older carriers.
func (o *overrides) legacy() {
	c := o.e.carried()
	var have AgentHints
	if o.e != nil && o.e.AgentHints != nil {
		have = *o.e.AgentHints
	}
	if have.PrefixID == nil {
		if s := o.prefixID(c.prefixID); s != "" {
			o.hints().PrefixID = new(s)
		}
	}
	if have.TotalRequests == nil {
		if n, ok := o.total(c.total); ok {
			o.hints().TotalRequests = new(n)
		} else if n, ok := o.remaining(); ok {
			o.hints().RemainingCalls = new(n)
		}
	}
	if have.OSL == nil {
		if n, ok := o.level(tokenLevels, c.osl, HeaderPrefixOSL, HeaderNATExpectedOutputTokens); ok {
			o.hints().OSL = new(clampUint32(n))
		}
	}
	if have.IATMS == nil {
		if n, ok := o.level(millisLevels, c.iat, HeaderPrefixIAT, HeaderNATInterArrivalMS); ok {
			o.hints().IATMS = new(n)
		}
	}
	if have.LatencySensitivity == nil {
		o.sensitivity()
	}
}

// header is get with white space trimmed, "" without a get.
func (o *overrides) header(name string) string {
	if o.get == nil {
		return ""
	}
	return strings.TrimSpace(o.get(name))
}

func (o *overrides) prefixID(annotation string) string {
	if annotation != "" {
		if len(annotation) <= MaxIDBytes {
			return annotation
		}
		o.ignore(pathAnnotations, reasonLongID)
	}
	if o.get == nil {
		return ""
	}
	return o.id(HeaderPrefixID)
}

func (o *overrides) total(annotation string) (uint64, bool) {
	if annotation != "" {
		if n, ok := parseTotal(annotation); ok {
			return n, true
		}
		o.ignore(pathAnnotations, reasonNotCount)
	}
	if s := o.header(HeaderPrefixTotalRequests); s != "" {
		if n, ok := parseTotal(s); ok {
			return n, true
		}
		o.ignore(HeaderPrefixTotalRequests, reasonNotCount)
	}
	return 0, false
}

// remaining is how many calls follow. Only the oldest carrier says that.
func (o *overrides) remaining() (uint64, bool) {
	if s := o.header(HeaderNATRemainingLLMCalls); s != "" {
		if n, ok := parseUint64(s); ok {
			return n, true
		}
		o.ignore(HeaderNATRemainingLLMCalls, reasonNotCount)
	}
	return 0, false
}

// level is the first of the annotation and the headers that is a category or a
// number.
func (o *overrides) level(l levels, annotation string, names ...string) (uint64, bool) {
	if annotation != "" {
		if n, ok := l.parse(annotation); ok {
			return n, true
		}
		o.ignore(pathAnnotations, reasonNotNumber)
	}
	for _, name := range names {
		s := o.header(name)
		if s == "" {
			continue
		}
		if n, ok := l.parse(s); ok {
			return n, true
		}
		o.ignore(name, reasonNotNumber)
	}
	return 0, false
}

func (o *overrides) sensitivity() {
	s := o.header(HeaderPrefixLatencySensitivity)
	if s == "" {
		return
	}
	if n, ok := sensitivityLevels.category(s); ok {
		o.hints().LatencySensitivity = new(float64(n))
	} else if v, ok := parseFinite(s); ok {
		o.hints().LatencySensitivity = new(v)
	} else {
		o.ignore(HeaderPrefixLatencySensitivity, reasonNotNumber)
	}
}
