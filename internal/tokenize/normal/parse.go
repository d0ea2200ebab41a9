package normal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// maxDepth bounds how deep sequences may be nested in each other.
const maxDepth = 32

// Parse compiles the normalizer member of a tokenizer.json. Null, nothing, and
// sequences without a step give nil: the text stays as it is. A type that is not
// known, a member that is missing or of the wrong kind is an error that names it.
func Parse(raw []byte) (Normalizer, error) {
	steps, err := parse(nil, raw, 0)
	if err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	switch len(steps) {
	case 0:
		return nil, nil
	case 1:
		return steps[0], nil
	}
	return sequence(steps), nil
}

// parse appends the steps of one normalizer to dst. Sequences are unrolled.
func parse(dst []Normalizer, raw []byte, depth int) ([]Normalizer, error) {
	raw = bytes.TrimSpace(raw)
	if depth == 0 && (len(raw) == 0 || string(raw) == "null") {
		return dst, nil
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("sequences nested more than %d deep", maxDepth)
	}
	var m members
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("expected an object: %w", err)
	}
	if m == nil {
		return nil, errors.New("expected an object, found null")
	}
	kind, err := get[string](m, "type")
	if err != nil {
		return nil, err
	}
	if kind == "Sequence" {
		list, err := get[[]json.RawMessage](m, "normalizers")
		if err != nil {
			return nil, err
		}
		for i, raw := range list {
			if dst, err = parse(dst, raw, depth+1); err != nil {
				return nil, fmt.Errorf("normalizers[%d]: %w", i, err)
			}
		}
		return dst, nil
	}
	steps, err := m.build(kind)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return append(dst, steps...), nil
}

// build returns the steps of a normalizer of a kind that is not a sequence.
func (m members) build(kind string) ([]Normalizer, error) {
	switch kind {
	case "NFC":
		return one(nfc, nil)
	case "NFD":
		return one(nfd, nil)
	case "NFKC":
		return one(nfkc, nil)
	case "NFKD":
		return one(nfkd, nil)
	case "Lowercase":
		return one(lowercase, nil)
	case "StripAccents":
		return one(stripAccents, nil)
	case "Nmt":
		return one(nmt, nil)
	case "ByteLevel":
		return one(byteLevel{}, nil)
	case "Strip":
		return m.strip()
	case "Prepend":
		return m.prepend()
	case "Replace":
		return one(m.replace())
	case "BertNormalizer":
		return m.bert()
	case "Precompiled":
		return one(m.precompiled())
	}
	return nil, errors.New("type of normalizer not supported")
}

// one makes a list of a single step.
func one(n Normalizer, err error) ([]Normalizer, error) {
	if err != nil {
		return nil, err
	}
	return []Normalizer{n}, nil
}

// members are the members of a JSON object by their exact names, the last of
// equal names.
type members map[string]json.RawMessage

// get returns a member that must be there and not null.
func get[T any](m members, name string) (T, error) {
	var v T
	raw, ok := m[name]
	if !ok {
		return v, fmt.Errorf("%s: missing, expected %s", name, kindOf(v))
	}
	if string(raw) == "null" {
		return v, fmt.Errorf("%s: expected %s, found null", name, kindOf(v))
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("%s: expected %s: %w", name, kindOf(v), err)
	}
	return v, nil
}

// kindOf names the JSON type that v is read from.
func kindOf(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case members:
		return "an object"
	}
	return "a list"
}
