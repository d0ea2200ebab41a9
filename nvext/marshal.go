package nvext

import (
	"encoding/json"
	"fmt"
)

// MarshalJSON writes the set fields in the order of the struct, then the
// unknown members as they came.
func (e NvExt) MarshalJSON() ([]byte, error) {
	type plain NvExt
	return marshalWith(plain(e), e.Unknown)
}

// UnmarshalJSON is [Parse] into e; null leaves e as it is.
func (e *NvExt) UnmarshalJSON(raw []byte) error {
	v, err := Parse(raw)
	if v != nil {
		*e = *v
	}
	return err
}

// MarshalJSON writes the set fields in the order of the struct, then the
// unknown members as they came.
func (h AgentHints) MarshalJSON() ([]byte, error) {
	type plain AgentHints
	return marshalWith(plain(h), h.Unknown)
}

// UnmarshalJSON reads hints by the rules of [Parse].
func (h *AgentHints) UnmarshalJSON(raw []byte) error {
	return unmarshalWith(h, raw, "agent_hints", (*decoder).agentHints)
}

// MarshalJSON writes the set fields in the order of the struct, then the
// unknown members as they came.
func (s SessionControl) MarshalJSON() ([]byte, error) {
	type plain SessionControl
	return marshalWith(plain(s), s.Unknown)
}

// UnmarshalJSON reads session control by the rules of [Parse].
func (s *SessionControl) UnmarshalJSON(raw []byte) error {
	return unmarshalWith(s, raw, "session_control", (*decoder).sessionControl)
}

// MarshalJSON writes the set fields in the order of the struct, then the
// unknown members as they came.
func (c CacheControl) MarshalJSON() ([]byte, error) {
	type plain CacheControl
	return marshalWith(plain(c), c.Unknown)
}

// UnmarshalJSON reads cache control by the rules of [Parse].
func (c *CacheControl) UnmarshalJSON(raw []byte) error {
	return unmarshalWith(c, raw, "cache_control", (*decoder).cacheControl)
}

// MarshalJSON writes the set fields in the order of the struct, then the
// unknown members as they came.
func (u MetadataUpload) MarshalJSON() ([]byte, error) {
	type plain MetadataUpload
	return marshalWith(plain(u), u.Unknown)
}

// UnmarshalJSON reads the upload by the rules of [Parse].
func (u *MetadataUpload) UnmarshalJSON(raw []byte) error {
	return unmarshalWith(u, raw, "metadata_upload", (*decoder).metadataUpload)
}

// MarshalJSON writes the set fields in the order of the struct, then the
// unknown members as they came.
func (c RoutingConstraints) MarshalJSON() ([]byte, error) {
	type plain RoutingConstraints
	return marshalWith(plain(c), c.Unknown)
}

// UnmarshalJSON reads constraints by the rules of [Parse].
func (c *RoutingConstraints) UnmarshalJSON(raw []byte) error {
	return unmarshalWith(c, raw, "routing_constraints", (*decoder).routingConstraints)
}

// MarshalJSON writes the set fields in the order of the struct, then the
// unknown members as they came.
func (t RouterTargets) MarshalJSON() ([]byte, error) {
	type plain RouterTargets
	return marshalWith(plain(t), t.Unknown)
}

// UnmarshalJSON reads targets by the rules of [Parse].
func (t *RouterTargets) UnmarshalJSON(raw []byte) error {
	return unmarshalWith(t, raw, "router", (*decoder).routerTargets)
}

// marshalWith encodes the known fields by their tags and puts the unknown
// members before the closing brace.
func marshalWith(known any, unknown []Member) ([]byte, error) {
	b, err := json.Marshal(known)
	if err != nil || len(unknown) == 0 {
		return b, err
	}
	b = b[:len(b)-1]
	for _, m := range unknown {
		if len(b) > 1 {
			b = append(b, ',')
		}
		key, err := json.Marshal(m.Key)
		if err != nil {
			return nil, fmt.Errorf("nvext: key %q: %w", m.Key, err)
		}
		b = append(append(b, key...), ':')
		if len(m.Value) == 0 {
			b = append(b, "null"...)
		} else {
			b = append(b, m.Value...)
		}
	}
	return append(b, '}'), nil
}

func unmarshalWith[T any](dst *T, raw []byte, path string, read func(*decoder, string, []byte) *T) error {
	raw, err := trimValue(raw)
	if err != nil {
		return err
	}
	var d decoder
	v := read(&d, path, raw)
	if d.err != nil {
		return d.err
	}
	if v != nil {
		*dst = *v
	}
	return nil
}
