package openaihttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Kept is a document that a server may have, as it was told last. The zero value is one
// that was not told. Safe for concurrent use; a document that was told is not changed.
type Kept[T any] struct{ last atomic.Pointer[T] }

// Ask asks a server for the document at a path, and at the next one if there is none.
// It returns what read makes of it, nil where the server has no document or read
// returns nil for what it has. A server that does not answer is taken to say what it
// said last.
func (k *Kept[T]) Ask(ctx context.Context, e *Engine, read func([]byte) *T, paths ...string) (*T, Answer) {
	return k.AskWithin(ctx, askTimeout, e, read, paths...)
}

// AskWithin is Ask for a document that takes a server longer than others.
func (k *Kept[T]) AskWithin(ctx context.Context, limit time.Duration, e *Engine, read func([]byte) *T, paths ...string) (*T, Answer) {
	for _, path := range paths {
		body, answer := e.askFor(ctx, limit, path)
		switch answer {
		case Unanswered:
			return k.last.Load(), Unanswered
		case Told:
			if doc := read(body); doc != nil {
				k.last.Store(doc)
				return doc, Told
			}
		}
	}
	k.last.Store(nil)
	return nil, Absent
}

// Forget drops what was told.
func (k *Kept[T]) Forget() { k.last.Store(nil) }

// JSON reads a document as a T; nil if it is none. A member of another type than
// expected is left at zero.
func JSON[T any](doc []byte) *T {
	out := new(T)
	if lenient(json.Unmarshal(doc, out)) != nil {
		return nil
	}
	return out
}

// MaxListed is how many elements of a list are taken.
const MaxListed = 1024

// List is the beginning of a list that a server has told.
type List[T any] struct {
	Items []T  // at most MaxListed
	More  bool // there are others
}

// JSONList is JSON for a document that is a list. An element of another type than
// expected is left at zero.
func JSONList[T any](doc []byte) *List[T] {
	list, err := readList[T](json.NewDecoder(bytes.NewReader(doc)))
	if err != nil {
		return nil
	}
	return &list
}

// readList reads a list element by element, so that a long one takes neither time nor
// memory beyond what is used of it.
func readList[T any](dec *json.Decoder) (list List[T], err error) {
	if err := delim(dec, '['); err != nil {
		return list, err
	}
	for dec.More() {
		if len(list.Items) == MaxListed {
			list.More = true
			return list, nil
		}
		var (
			item     T
			mistyped *json.UnmarshalTypeError
		)
		if err := dec.Decode(&item); err != nil && !errors.As(err, &mistyped) {
			return list, err
		}
		list.Items = append(list.Items, item)
	}
	return list, delim(dec, ']')
}

// delim reads one of the characters that begin and end lists and objects.
func delim(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err == nil && got != want {
		err = fmt.Errorf("expected %s, got %v", want, got)
	}
	return err
}
