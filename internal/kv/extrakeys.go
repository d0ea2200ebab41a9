package kv

import (
	"bytes"
	"errors"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// hash appends the blocks of an event with their hashes: of the tokens, under the
// adapter's and the salt's seed, and of the objects among them.
func (d *Decoder) hash(ev *wireEvent) Reason {
	keys, err := listOf(ev.extraKeys)
	if err != nil {
		return Malformed
	}
	infos, err := listOf(ev.mmInfos)
	if err != nil {
		return Malformed
	}
	d.objectsLeft = maxObjects
	var ns namespace
	var seed uint64
	size, window := int(ev.blockSize), int(ev.blockSize)
	if ev.pairs {
		window++
	}
	for i, id := range ev.hashes {
		salt, err := d.readObjects(ev, &keys, &infos, i == 0 && !ev.with(mParent))
		if err != nil {
			return reasonOf(err)
		}
		if i == 0 {
			if len(ev.salt) > 0 {
				salt = ev.salt
			}
			if ns = d.namespace(ev, salt); ns == ambiguous {
				return AmbiguousCacheNamespace
			}
			seed = HashSeed(string(ev.lora), "") + uint64(ns)
		}
		block := Block{ID: id}
		tokens := ev.tokens[i*size : i*size+window]
		if len(d.objects) == 0 {
			block.Tokens = HashTokens(seed, tokens)
		} else {
			block.Tokens = hashObjects(seed, tokens, d.objects)
		}
		d.blocks = append(d.blocks, block)
	}
	for _, id := range ev.hashes {
		d.salted.record(id, ns)
	}
	return used
}

// reasonOf is the reason to leave an event out that cannot be read.
func reasonOf(err error) Reason {
	if errors.Is(err, errTooLarge) {
		return TooLarge
	}
	return Malformed
}

// readObjects leaves the objects of the next block in d.objects and returns the salt
// among its extra keys. Where objects are told outright, those count, each as often as
// it is told; an engine's extra keys have an object for each time it is in the block,
// and prompts are hashed with each once.
func (d *Decoder) readObjects(ev *wireEvent, keys, infos *list, first bool) (salt []byte, err error) {
	d.objects = d.objects[:0]
	if keys.left > 0 {
		if salt, err = d.readExtraKeys(keys, ev, first); err != nil {
			return nil, err
		}
	}
	if !ev.with(mMMInfos) {
		slices.Sort(d.objects)
		d.objects = slices.Compact(d.objects)
		return salt, nil
	}
	d.objects = d.objects[:0]
	if infos.left > 0 {
		err = d.readMMInfo(infos)
	}
	return salt, err
}

// namespace is the one that the event names, or else that of its parent.
func (d *Decoder) namespace(ev *wireEvent, salt []byte) namespace {
	switch {
	case len(salt) > 0:
		return namespaceOf(string(salt))
	case ev.with(mParent):
		return d.salted.get(ev.parent)
	}
	return unsalted
}

// list is an array that is read element by element.
type list struct {
	b    []byte
	left uint32
}

func listOf(raw []byte) (l list, err error) {
	if len(raw) > 0 {
		l.left, l.b, err = msgp.ReadArrayHeaderBytes(raw)
	}
	return l, err
}

// readExtraKeys reads what besides its tokens the identity of the next block is
// made of: for vLLM the adapter's name, the objects in it, each a string or a pair
// of string and offset, the cache salt in the first block of a prompt, and hashes of
// embeddings. The objects go to d.objects and the salt is returned.
//
// A string with the salt's tag is the salt. In the first block of a prompt so is one
// without, if there is none that has it: in forms in which objects are pairs whatever
// it looks like, and in older ones unless it looks like an object's hash. What else it
// may be there is the name that a request gave to an object. Salts are more common than
// such names, and either is found only by prompts that have the very same string, as
// salt or as name. Whatever else could be an object is taken for one, so that blocks
// that an engine tells apart are never taken for the same.
func (d *Decoder) readExtraKeys(l *list, ev *wireEvent, first bool) (salt []byte, err error) {
	l.left--
	if msgp.IsNil(l.b) {
		l.b = l.b[1:]
		return nil, nil
	}
	n, b, err := msgp.ReadArrayHeaderBytes(l.b)
	if err != nil {
		return nil, err
	}
	lora, tagged := ev.lora, false
	for ; n > 0; n-- {
		var key, object []byte
		switch msgp.NextType(b) {
		case msgp.StrType:
			if key, b, err = msgp.ReadStringZC(b); err != nil {
				return nil, err
			}
			switch {
			case len(lora) > 0 && bytes.Equal(key, lora):
				lora = nil
			case bytes.HasPrefix(key, []byte(saltTag)):
				if !tagged {
					object = salt
				}
				salt, tagged = key, true
			case first && !tagged && (ev.paired || !isMMHash(key)):
				object, salt = salt, key
			default:
				object = key
			}
		case msgp.BinType:
			object, b, err = msgp.ReadBytesZC(b)
		case msgp.ArrayType:
			object, b, err = readPair(b)
		default:
			b, err = skipValue(b)
		}
		if err == nil && object != nil {
			err = d.addObject(IdentifierHash(string(object)))
		}
		if err != nil {
			return nil, err
		}
	}
	l.b = b
	return salt, nil
}

// readPair reads an object's name, nil if there is none, and where in the block it
// begins.
func readPair(b []byte) (name, rest []byte, err error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	for i := uint32(0); i < n && err == nil; i++ {
		if i == 0 && msgp.NextType(b) == msgp.StrType {
			name, b, err = msgp.ReadStringZC(b)
		} else {
			b, err = skipValue(b)
		}
	}
	return name, b, err
}

func isMMHash(key []byte) bool {
	_, ok := ParseMMHash(string(key))
	return ok
}

// addObject adds an object to those of the block.
func (d *Decoder) addObject(h MMHash) error {
	if len(d.objects) == maxBlockObjects || d.objectsLeft == 0 {
		return errTooLarge
	}
	d.objectsLeft--
	d.objects = append(d.objects, h)
	return nil
}

// readMMInfo reads the objects of the next block where they are told outright:
// {"mm_objects":[{"mm_hash":n,"offsets":[…]}]} or nil.
func (d *Decoder) readMMInfo(l *list) (err error) {
	l.left--
	if msgp.IsNil(l.b) {
		l.b = l.b[1:]
		return nil
	}
	l.b, err = readStruct(l.b, mmInfoOrder, func(name string, b []byte) ([]byte, error) {
		if name != "mm_objects" {
			return skipValue(b)
		}
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		for ; n > 0 && err == nil; n-- {
			b, err = readStruct(b, mmObjectOrder, func(name string, b []byte) ([]byte, error) {
				if name != "mm_hash" {
					return skipValue(b)
				}
				v, rest, err := readHash(b)
				if err == nil {
					err = d.addObject(MMHash(v))
				}
				return rest, err
			})
		}
		return b, err
	})
	return err
}

var (
	mmInfoOrder   = inOrder("mm_objects")
	mmObjectOrder = inOrder("mm_hash")
)
