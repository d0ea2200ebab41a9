package openaihttp

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"

	"github.com/stator-ai/stator/internal/openai"
)

// smallBody is the size up to which a body goes out in one write with its header.
const smallBody = 16 << 10

// upload is a request body on its way to an engine. The transport may read it
// more than once, and may still read it when the answer has begun.
type upload struct {
	pieces openai.Pieces
	size   int64
	open   atomic.Int32 // readers that the transport has not closed
}

func newUpload(p openai.Pieces) *upload { return &upload{pieces: p, size: p.Len()} }

// reader returns a reader over the body. For a small body it is one that the
// transport knows to be in memory, so that it does not flush the header first; a
// large one lets go of its memory as it is read.
func (u *upload) reader() io.ReadCloser {
	if u.size <= smallBody {
		if len(u.pieces) == 1 {
			return io.NopCloser(bytes.NewReader(u.pieces[0]))
		}
		return io.NopCloser(bytes.NewReader(u.pieces.Bytes()))
	}
	u.open.Add(1)
	return &largeBody{upload: u, r: u.pieces.Reader(), left: u.size}
}

// sent reports whether nobody reads the body any more. Of a small one that is not
// known.
func (u *upload) sent() bool { return u.size > smallBody && u.open.Load() == 0 }

// largeBody is one reading of a large body.
type largeBody struct {
	*upload
	r      io.ReadCloser
	left   int64
	closed atomic.Bool
}

func (b *largeBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}

// Close says that the transport is done with it.
func (b *largeBody) Close() error {
	if !b.closed.Swap(true) {
		b.open.Add(-1)
	}
	return nil
}

// writeTo writes what is left without copying it.
func (b *largeBody) writeTo(w io.Writer) (int64, error) {
	n, err := b.r.(io.WriterTo).WriteTo(w)
	b.left -= n
	return n, err
}

// conn is a TCP connection that takes a large body as it lies in memory. The
// transport hides the body behind a LimitedReader and would copy it piece by
// piece through a buffer.
type conn struct{ *net.TCPConn }

func (c conn) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok {
		if b, ok := l.R.(*largeBody); ok && b.left <= l.N {
			n, err := b.writeTo(c.TCPConn)
			l.N -= n
			return n, err
		}
	}
	return c.TCPConn.ReadFrom(r)
}
