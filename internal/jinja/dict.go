package jinja

import (
	"fmt"
	"iter"
	"math"
	"math/big"
	"strconv"
)

// A Dict is Python's dict: it keeps the order in which keys were first set. Keys
// may be any hashable value; 1, 1.0 and true are the same key. The zero Dict is
// empty and ready. Reading is safe for concurrent use as long as nobody sets.
type Dict struct {
	entries []dictEntry
	// index finds keys by their hashable form. It is nil while the entries are few
	// enough to look through.
	index map[Value]int
}

type dictEntry struct{ key, value Value }

// maxUnindexed is the number of entries up to which looking through them beats
// hashing; messages and tool definitions have fewer keys.
const maxUnindexed = 8

// NewDict returns an empty dict with room for n entries.
func NewDict(n int) *Dict { return &Dict{entries: make([]dictEntry, 0, n)} }

// Len returns the number of entries.
func (d *Dict) Len() int { return len(d.entries) }

// Get returns the value of a string key.
func (d *Dict) Get(key string) (Value, bool) {
	if i := d.find(key); i >= 0 {
		return d.entries[i].value, true
	}
	return nil, false
}

// Set sets the value of a string key. A key that exists keeps its position.
func (d *Dict) Set(key string, v Value) {
	if i := d.find(key); i >= 0 {
		d.entries[i].value = v
		return
	}
	d.add(key, key, v)
}

// All ranges over keys and values in order.
func (d *Dict) All() iter.Seq2[Value, Value] {
	return func(yield func(Value, Value) bool) {
		for _, e := range d.entries {
			if !yield(e.key, e.value) {
				return
			}
		}
	}
}

func (d *Dict) find(key string) int {
	if d.index != nil {
		if i, ok := d.index[key]; ok {
			return i
		}
		return -1
	}
	for i := range d.entries {
		switch k := d.entries[i].key.(type) {
		case string:
			if k == key {
				return i
			}
		case markup:
			if string(k) == key {
				return i
			}
		}
	}
	return -1
}

// findHashed is find for the hashable form of any key.
func (d *Dict) findHashed(h Value) int {
	if s, ok := h.(string); ok {
		return d.find(s)
	}
	if d.index != nil {
		if i, ok := d.index[h]; ok {
			return i
		}
		return -1
	}
	for i := range d.entries {
		// The keys of a dict are hashable.
		if k, _ := hashable(d.entries[i].key); k == h {
			return i
		}
	}
	return -1
}

func (d *Dict) add(hashed, key, v Value) {
	d.entries = append(d.entries, dictEntry{key, v})
	switch n := len(d.entries); {
	case d.index != nil:
		d.index[hashed] = n - 1
	case n > maxUnindexed:
		d.index = make(map[Value]int, 2*n)
		for i, e := range d.entries {
			h, _ := hashable(e.key)
			d.index[h] = i
		}
	}
}

// lookup returns the value of any key; an unhashable one is an error.
func (d *Dict) lookup(key Value) (Value, bool, error) {
	if s, ok := key.(string); ok {
		v, ok := d.Get(s)
		return v, ok, nil
	}
	h, err := hashable(key)
	if err != nil {
		return nil, false, err
	}
	if i := d.findHashed(h); i >= 0 {
		return d.entries[i].value, true, nil
	}
	return nil, false, nil
}

// insert sets the value of any key; an unhashable one is an error.
func (d *Dict) insert(key, v Value) error {
	h, err := hashable(key)
	if err != nil {
		return err
	}
	if i := d.findHashed(h); i >= 0 {
		d.entries[i].value = v
		return nil
	}
	d.add(h, key, v)
	return nil
}

func (d *Dict) clone() *Dict {
	c := NewDict(len(d.entries))
	for _, e := range d.entries {
		// Keys of a dict are hashable.
		_ = c.insert(e.key, e.value)
	}
	return c
}

// Forms of keys in an index that are not themselves comparable the way Python
// compares them.
type (
	noneKey  struct{}
	undefKey struct{}
	bigKey   string
	tupleKey string
)

// hashable returns a comparable Go value that is equal for keys which Python
// holds to be equal.
func hashable(v Value) (Value, error) {
	switch v := v.(type) {
	case string, int64:
		return v, nil
	case markup:
		return string(v), nil
	case nil:
		return noneKey{}, nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			f, _ := big.NewFloat(v).Int(nil)
			return hashable(normInt(f))
		}
		return v, nil
	case *big.Int:
		return bigKey(v.String()), nil
	case Undefined:
		return undefKey{}, nil
	case *Tuple:
		buf, err := appendTupleKey(nil, v, 0)
		return tupleKey(buf), err
	case *namespace, *macro, *function, *generator, *loopContext, *cycler, *joiner, *rangeValue, *templateRef:
		return v, nil
	case *List, *Dict, *dictView:
		return nil, errorf("unhashable type: %s", typeName(v))
	}
	return nil, unknownType(v)
}

// maxTupleKey bounds the size of a tuple as a key. Tuples of tuples can be
// exponentially larger than the memory they take.
const maxTupleKey = 1 << 16

func appendTupleKey(dst []byte, t *Tuple, depth int) ([]byte, error) {
	dst = append(dst, '(')
	for _, it := range t.Items {
		if len(dst) > maxTupleKey || depth > maxNestedValues {
			return nil, &LimitError{What: "size of a key", Max: maxTupleKey}
		}
		if sub, ok := it.(*Tuple); ok {
			var err error
			if dst, err = appendTupleKey(dst, sub, depth+1); err != nil {
				return nil, err
			}
			continue
		}
		h, err := hashable(it)
		if err != nil {
			return nil, err
		}
		switch h := h.(type) {
		case string:
			dst = strconv.AppendInt(append(dst, 's'), int64(len(h)), 10)
			dst = append(append(dst, ':'), h...)
		case int64:
			dst = strconv.AppendInt(append(dst, 'i'), h, 10)
		case float64:
			dst = strconv.AppendFloat(append(dst, 'f'), h, 'g', -1, 64)
		case noneKey, undefKey, bigKey:
			dst = fmt.Appendf(dst, "%T%v", h, h)
		default:
			dst = fmt.Appendf(dst, "%T%p", h, h)
		}
		dst = append(dst, ',')
	}
	return append(dst, ')'), nil
}
