package kv

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/tinylib/msgp/msgp"
	"github.com/zeebo/xxh3"
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
	var ns namespace
	var seed uint64
	size, window := int(ev.blockSize), int(ev.blockSize)
	if ev.pairs {
		window++
	}
	for i, id := range ev.hashes {
		d.objects = d.objects[:0]
		var salt []byte
		if keys.left > 0 {
			if salt, err = d.readExtraKeys(&keys, ev.lora, i == 0 && !ev.with(mParent)); err != nil {
				return Malformed
			}
		}
		if ev.with(mMMInfos) {
			d.objects = d.objects[:0]
			if infos.left > 0 {
				if err := d.readMMInfo(&infos); err != nil {
					return Malformed
				}
			}
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
		d.objects = distinct(d.objects)
		tokens := ev.tokens[i*size : i*size+window]
		d.blocks = append(d.blocks, Block{ID: id, Tokens: HashTokensMM(seed, tokens, d.objects)})
	}
	for _, id := range ev.hashes {
		d.salted.record(id, ns)
	}
	return used
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
// A string that is neither the adapter nor an object's hash is the salt, tagged or
// not, in the first block. Whatever else could be an object is taken for one, so
// that blocks that an engine tells apart are never taken for the same.
func (d *Decoder) readExtraKeys(l *list, lora []byte, first bool) (salt []byte, err error) {
	l.left--
	if msgp.IsNil(l.b) {
		l.b = l.b[1:]
		return nil, nil
	}
	n, b, err := msgp.ReadArrayHeaderBytes(l.b)
	if err != nil {
		return nil, err
	}
	tagged := false
	for ; n > 0; n-- {
		var key []byte
		switch msgp.NextType(b) {
		case msgp.StrType:
			if key, b, err = msgp.ReadStringZC(b); err != nil {
				return nil, err
			}
			switch {
			case len(lora) > 0 && bytes.Equal(key, lora):
				lora = nil
			case bytes.HasPrefix(key, []byte(saltTag)):
				if !tagged && salt != nil {
					d.addObject(salt)
				}
				salt, tagged = key, true
			case first && !tagged && !isMMHash(key):
				if salt != nil {
					d.addObject(salt)
				}
				salt = key
			default:
				d.addObject(key)
			}
		case msgp.BinType:
			if key, b, err = msgp.ReadBytesZC(b); err != nil {
				return nil, err
			}
			d.addObject(key)
		case msgp.ArrayType:
			if b, err = d.readPair(b); err != nil {
				return nil, err
			}
		default:
			if b, err = msgp.Skip(b); err != nil {
				return nil, err
			}
		}
	}
	l.b = b
	return salt, nil
}

// readPair reads an object's name and where in the block it begins.
func (d *Decoder) readPair(b []byte) ([]byte, error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	for i := uint32(0); i < n && err == nil; i++ {
		if i == 0 && msgp.NextType(b) == msgp.StrType {
			var key []byte
			if key, b, err = msgp.ReadStringZC(b); err == nil {
				d.addObject(key)
			}
			continue
		}
		b, err = msgp.Skip(b)
	}
	return b, err
}

func isMMHash(key []byte) bool {
	_, ok := ParseMMHash(string(key))
	return ok
}

// addObject adds an object by its hash or, if it is called something else, by the
// hash of its name.
func (d *Decoder) addObject(key []byte) {
	h, ok := ParseMMHash(string(key))
	if !ok {
		h = MMHash(xxh3.Hash(key))
	}
	d.addMM(h)
}

func (d *Decoder) addMM(h MMHash) {
	d.objects = append(d.objects, MMObject{Hash: h})
}

// distinct drops objects that are there twice, as prompts are hashed with each once.
func distinct(objects []MMObject) []MMObject {
	if len(objects) < 2 {
		return objects
	}
	slices.SortFunc(objects, func(a, b MMObject) int { return cmp.Compare(a.Hash, b.Hash) })
	return slices.CompactFunc(objects, func(a, b MMObject) bool { return a.Hash == b.Hash })
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
			return msgp.Skip(b)
		}
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		for ; n > 0 && err == nil; n-- {
			b, err = readStruct(b, mmObjectOrder, func(name string, b []byte) ([]byte, error) {
				if name != "mm_hash" {
					return msgp.Skip(b)
				}
				v, rest, err := readHash(b)
				if err == nil {
					d.addMM(MMHash(v))
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
