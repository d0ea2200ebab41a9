package hints

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/nvext"
)

// inject returns the body with the hints in its nvext. Whatever else there is keeps its
// bytes; of nvext, the members that are not ours do. An nvext, agent_hints or annotations of
// another type is replaced. The error is that of an nvext with absurdly many members.
func (v *values) inject(body *openai.Object, carrier Carrier, pin CachePin) (openai.Pieces, error) {
	old := body.Get("nvext")
	var ext []byte
	if old.Kind() != '{' {
		ext = v.appendExt(make([]byte, 0, 256), carrier, pin)
	} else {
		merged, err := v.merge(old, carrier, pin)
		if err != nil {
			return nil, err
		}
		ext = merged
	}
	return body.Edit([]openai.Edit{{Key: "nvext", Value: ext}}), nil
}

// appendExt appends an nvext that holds the hints alone.
func (v *values) appendExt(dst []byte, carrier Carrier, pin CachePin) []byte {
	dst = append(dst, `{"agent_hints":`...)
	dst = v.appendHints(dst, carrier)
	switch {
	case carrier == Annotations:
		dst = append(dst, `,"annotations":`...)
		dst = v.appendAnnotations(dst, nil)
	case carrier == NAT && pin != NoPin:
		dst = append(dst, `,"cache_control":`...)
		dst = v.appendCacheControl(dst, pin)
	}
	return append(dst, '}')
}

// merge lays the hints over an nvext that is there.
func (v *values) merge(old []byte, carrier Carrier, pin CachePin) ([]byte, error) {
	ext, err := openai.ParseObject(old)
	if err != nil {
		return nil, err
	}
	hints := v.appendHints(make([]byte, 0, 192), carrier)
	if theirs := ext.Get("agent_hints"); theirs.Kind() == '{' {
		if hints, err = overlay(theirs, hints); err != nil {
			return nil, err
		}
	}
	edits := []openai.Edit{{Key: "agent_hints", Value: hints}}
	switch {
	case carrier == Annotations:
		list := v.appendAnnotations(nil, ext.Get("annotations"))
		edits = append(edits, openai.Edit{Key: "annotations", Value: list})
	case carrier == NAT && pin != NoPin:
		edits = append(edits, openai.Edit{Key: "cache_control", Value: v.appendCacheControl(nil, pin)})
	}
	return ext.Edit(edits).Bytes(), nil
}

// overlay lays the members of one object over those of another.
func overlay(under, over []byte) ([]byte, error) {
	a, err := openai.ParseObject(under)
	if err != nil {
		return nil, err
	}
	b, err := openai.ParseObject(over)
	if err != nil {
		return nil, err
	}
	edits := make([]openai.Edit, b.Len())
	for i := range edits {
		key, value := b.At(i)
		edits[i] = openai.Edit{Key: key, Value: value}
	}
	return a.Edit(edits).Bytes(), nil
}

func (v *values) appendHints(dst []byte, carrier Carrier) []byte {
	dst = append(dst, `{"latency_sensitivity":`...)
	dst = strconv.AppendInt(dst, int64(v.sensitivity), 10)
	dst = append(dst, `.0,"osl":`...)
	dst = strconv.AppendInt(dst, int64(v.osl), 10)
	dst = append(dst, `,"priority":`...)
	dst = strconv.AppendInt(dst, int64(v.priority), 10)
	if carrier == NAT {
		dst = append(dst, `,"prefix_id":`...)
		dst = openai.AppendString(dst, v.prefix)
		dst = append(dst, `,"total_requests":`...)
		dst = strconv.AppendInt(dst, int64(v.total), 10)
		dst = append(dst, `,"iat":`...)
		dst = strconv.AppendInt(dst, int64(v.iat), 10)
	}
	return append(dst, '}')
}

func (v *values) appendCacheControl(dst []byte, pin CachePin) []byte {
	dst = append(dst, `{"type":`...)
	dst = openai.AppendString(dst, string(pin))
	dst = append(dst, `,"ttl":`...)
	dst = openai.AppendString(dst, v.ttl())
	return append(dst, '}')
}

// appendAnnotations appends the hints as annotations, among those of a list that is there:
// one that says the same of another value is replaced where it stands, the others follow.
func (v *values) appendAnnotations(dst []byte, list openai.Value) []byte {
	ours := [...]struct{ key, value string }{
		{"prefix_id", v.prefix},
		{"total_requests", strconv.Itoa(v.total)},
		{"osl", strconv.Itoa(v.osl)},
		{"iat", strconv.Itoa(v.iat)},
	}
	var said [len(ours)]bool
	dst = append(dst, '[')
	start := len(dst)
	add := func() {
		if len(dst) > start {
			dst = append(dst, ',')
		}
	}
	if list.Kind() == '[' {
		list.Elements(func(e openai.Value) bool {
			text, _ := e.Text()
			for i, o := range ours {
				if key, _, ok := strings.Cut(text, ":"); ok && key == o.key {
					if !said[i] {
						add()
						dst = openai.AppendString(dst, o.key+":"+o.value)
					}
					said[i] = true
					return true
				}
			}
			add()
			dst = append(dst, e...)
			return true
		})
	}
	for i, o := range ours {
		if !said[i] {
			add()
			dst = openai.AppendString(dst, o.key+":"+o.value)
		}
	}
	return append(dst, ']')
}

// shortID returns an id that servers take: one that is too long keeps its beginning, and
// the whole of it decides about the end.
func shortID(id string) string {
	if len(id) <= nvext.MaxIDBytes {
		return id
	}
	const tail = 1 + 16
	return strings.ToValidUTF8(id[:nvext.MaxIDBytes-tail], "") + "~" + digest(id)
}

// digest returns 16 characters that stand for a name.
func digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}
