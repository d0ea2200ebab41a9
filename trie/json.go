package trie

import (
	"math"
	"strconv"
	"unicode/utf16"
)

// AppendJSON appends the trie's file to dst: the bytes that Python's json.dump writes with
// an indent of 2, all ASCII, without a newline at the end. An empty Version is written as
// the [Version] of this package, a nil Root as one without predictions, a nil child not at
// all, and a number that is not finite as 0.0.
func (t *Trie) AppendJSON(dst []byte) []byte {
	version, root := t.Version, t.Root
	if version == "" {
		version = Version
	}
	if root == nil {
		root = &Node{Name: rootName}
	}
	dst = append(dst, "{\n  \"version\": "...)
	dst = appendString(dst, version)
	dst = append(dst, ",\n  \"generated_at\": "...)
	dst = appendString(dst, t.GeneratedAt)
	dst = append(dst, ",\n  \"workflow_name\": "...)
	dst = appendString(dst, t.WorkflowName)
	dst = append(dst, ",\n  \"root\": "...)
	dst = root.append(dst, 2)
	return append(dst, "\n}"...)
}

// MarshalJSON returns what [Trie.AppendJSON] appends. Package json compacts it, so the
// canonical form comes from AppendJSON alone.
func (t *Trie) MarshalJSON() ([]byte, error) {
	return t.AppendJSON(nil), nil
}

// UnmarshalJSON sets the trie to what [Parse] reads, and leaves it alone on an error.
func (t *Trie) UnmarshalJSON(data []byte) error {
	read, err := Parse(data)
	if err != nil {
		return err
	}
	*t = *read
	return nil
}

// append writes a node whose closing brace is indented by depth spaces.
func (n *Node) append(dst []byte, depth int) []byte {
	in := depth + 2
	dst = appendKey(append(dst, '{'), in, "name")
	dst = appendString(dst, n.Name)

	dst = appendKey(append(dst, ','), in, "predictions_by_call_index")
	dst = append(dst, '{')
	for i := range n.ByCallIndex {
		if i > 0 {
			dst = append(dst, ',')
		}
		p := &n.ByCallIndex[i]
		dst = append(appendIndent(dst, in+2), '"')
		dst = strconv.AppendInt(dst, int64(p.Index), 10)
		dst = p.append(append(dst, `": `...), in+2)
	}
	dst = appendClose(dst, in, len(n.ByCallIndex))

	dst = appendKey(append(dst, ','), in, "predictions_any_index")
	if n.AnyIndex != nil {
		dst = n.AnyIndex.append(dst, in)
	} else {
		dst = append(dst, "null"...)
	}

	dst = appendKey(append(dst, ','), in, "children")
	dst = append(dst, '{')
	children := 0
	for _, c := range n.Children {
		if c == nil {
			continue
		}
		if children > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(appendIndent(dst, in+2), c.Name)
		dst = c.append(append(dst, ": "...), in+2)
		children++
	}
	dst = appendClose(dst, in, children)
	return append(appendIndent(dst, depth), '}')
}

func (p *Prediction) append(dst []byte, depth int) []byte {
	in := depth + 2
	dst = p.RemainingCalls.append(appendKey(append(dst, '{'), in, "remaining_calls"), in)
	dst = p.InterArrivalMS.append(appendKey(append(dst, ','), in, "interarrival_ms"), in)
	dst = p.OutputTokens.append(appendKey(append(dst, ','), in, "output_tokens"), in)
	dst = appendKey(append(dst, ','), in, "latency_sensitivity")
	if p.LatencySensitivity != nil {
		dst = strconv.AppendInt(dst, int64(*p.LatencySensitivity), 10)
	} else {
		dst = append(dst, "null"...)
	}
	return append(appendIndent(dst, depth), '}')
}

func (m *Metrics) append(dst []byte, depth int) []byte {
	in := depth + 2
	dst = strconv.AppendInt(appendKey(append(dst, '{'), in, "sample_count"), int64(m.SampleCount), 10)
	dst = appendFloat(appendKey(append(dst, ','), in, "mean"), m.Mean)
	dst = appendFloat(appendKey(append(dst, ','), in, "p50"), m.P50)
	dst = appendFloat(appendKey(append(dst, ','), in, "p90"), m.P90)
	dst = appendFloat(appendKey(append(dst, ','), in, "p95"), m.P95)
	return append(appendIndent(dst, depth), '}')
}

// appendIndent begins a line.
func appendIndent(dst []byte, depth int) []byte {
	dst = append(dst, '\n')
	for range depth {
		dst = append(dst, ' ')
	}
	return dst
}

// appendKey begins a line with a key that needs no escaping.
func appendKey(dst []byte, depth int, key string) []byte {
	dst = append(appendIndent(dst, depth), '"')
	return append(append(dst, key...), `": `...)
}

// appendClose ends an object of n members, which is {} if there are none.
func appendClose(dst []byte, depth, n int) []byte {
	if n > 0 {
		dst = appendIndent(dst, depth)
	}
	return append(dst, '}')
}

// appendFloat writes a number as Python's repr does: the fewest digits that mean it, with
// an exponent below 1e-4 and from 1e16 on, and always looking like a float.
func appendFloat(dst []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(dst, "0.0"...)
	}
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e16) {
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

// appendString writes a string in ASCII; bytes that are not UTF-8 become U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r >= ' ' && r <= '~':
			dst = append(dst, byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r == '\b':
			dst = append(dst, `\b`...)
		case r == '\f':
			dst = append(dst, `\f`...)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			dst = appendUnit(appendUnit(dst, hi), lo)
		default:
			dst = appendUnit(dst, r)
		}
	}
	return append(dst, '"')
}

// appendUnit writes one UTF-16 unit as an escape.
func appendUnit(dst []byte, u rune) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
}
