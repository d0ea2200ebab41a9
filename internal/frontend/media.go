package frontend

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
)

// An engine makes tokens of an image in ways of its own, so that a prompt with one has
// none here. It is placed by its text, in which a hash stands for the image.

// countMedia returns how many parts of the prompt are not text.
func (c *call) countMedia() int {
	if c.media < 0 {
		c.media = 0
		if c.endpoint == openai.Chat {
			openai.EachMedia(c.req.Messages, func(openai.Media) bool {
				c.media++
				return true
			})
		}
	}
	return c.media
}

// refSize is the size of what stands for an image.
const refSize = 8

// appendMessages appends the messages to dst, as far as its capacity goes, with the hash
// of each part that is not text in its place: an image of some megabytes would leave
// no room for what comes after it.
func appendMessages(dst []byte, messages openai.Value) []byte {
	at := 0
	add := func(b []byte) bool {
		n := min(len(b), cap(dst)-len(dst))
		dst = append(dst, b[:n]...)
		return n == len(b)
	}
	openai.EachMedia(messages, func(m openai.Media) bool {
		ref := binary.LittleEndian.AppendUint64(nil, uint64(mediaHash(messages, m)))
		fits := add(messages[at:m.Start]) && add(ref)
		at = m.End
		return fits
	})
	add(messages[at:])
	return dst
}

// mediaHash returns what tells a part from others: the client's name for it, by which
// engines go, too, else its URL, or its bytes where they stand in the URL, with all
// that is said beside it.
func mediaHash(messages openai.Value, m openai.Media) kv.MMHash {
	if name, ok := m.Name.Text(); ok {
		return kv.IdentifierHash(name)
	}
	return kv.MMHash(xxh3.Hash(messages[m.Start:m.End]))
}
