package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"slices"
)

// bodyStep is how much memory is taken for a frame before any of it has arrived. From
// there it grows with what has.
const bodyStep = 64 << 10

// keptFrame is how much memory of a frame is used again for the next message. What one
// large message needed is given back.
const keptFrame = 1 << 20

// reader takes frames from a stream. Its errors are those of the stream, with
// io.ErrUnexpectedEOF where it ends within a frame, and ProtocolErrors.
type reader struct {
	br      *bufio.Reader
	limit   int    // bytes of a message
	scratch []byte // the command read last
}

// greeting reads the greeting of a peer. It looks at every byte as soon as it can, since
// peers of older versions send fewer and wait.
func (r *reader) greeting() error {
	const want = "the greeting of ZMTP 3"
	var g [greetingSize]byte
	b, err := r.br.ReadByte()
	if err != nil {
		return err
	}
	if b != 0xff {
		more, _ := r.br.Peek(min(r.br.Buffered(), signatureSize-1))
		return unexpected(want, "%q", append([]byte{b}, more...))
	}
	g[0] = b
	if _, err := io.ReadFull(r.br, g[1:signatureSize]); err != nil {
		return whole(err)
	}
	if g[9] != 0x7f {
		return unexpected(want, "%q", g[:signatureSize])
	}
	if g[10], err = r.br.ReadByte(); err != nil {
		return whole(err)
	}
	if g[10] < 3 {
		return unexpected(want, "a peer of major version %d", g[10])
	}
	if _, err := io.ReadFull(r.br, g[11:]); err != nil {
		return whole(err)
	}
	return checkMechanism(&g)
}

// ready reads the READY command of a peer.
func (r *reader) ready() (Type, error) {
	flags, size, err := r.header()
	if err != nil {
		return "", err
	}
	if flags&flagCommand == 0 {
		return "", unexpected("the command READY", "a message")
	}
	body, err := r.command(size)
	if err != nil {
		return "", err
	}
	return parseReady(body)
}

// message reads the next message into the memory of m, and hands the bodies of commands
// that come before or within it to command. begun says whether any byte was consumed
// that is lost now, where there is an error.
func (r *reader) message(m Message, command func(body []byte) error) (_ Message, begun bool, err error) {
	m = m[:cap(m)]
	for i := range m {
		if cap(m[i]) > keptFrame {
			m[i] = nil
		}
	}
	m = m[:0]
	total := 0
	for {
		if len(m) == 0 {
			if _, err := r.br.Peek(1); err != nil {
				return m, false, err
			}
		}
		flags, size, err := r.header()
		if err != nil {
			return m, true, whole(err)
		}
		if flags&flagCommand != 0 {
			body, err := r.command(size)
			if err == nil {
				err = command(body)
			}
			if err != nil {
				return m, true, err
			}
			continue
		}
		if len(m) == MaxFrames {
			return m, true, unexpected("a message of few frames", "more than %d", MaxFrames)
		}
		if size > uint64(r.limit-total) {
			return m, true, unexpected("a message within the limit", "a frame of %d bytes after %d, where %d in all are the limit", size, total, r.limit)
		}
		total += int(size)
		if len(m) < cap(m) {
			m = m[:len(m)+1]
		} else {
			m = append(m, nil)
		}
		last := &m[len(m)-1]
		if *last, err = r.body(*last, int(size)); err != nil {
			return m, true, err
		}
		if flags&flagMore == 0 {
			return m, true, nil
		}
	}
}

// header reads flags and length of a frame.
func (r *reader) header() (flags byte, size uint64, err error) {
	if flags, err = r.br.ReadByte(); err != nil {
		return 0, 0, err
	}
	if flags&^flagsKnown != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return 0, 0, unexpected("a frame of a message or a command", "flags %#02x", flags)
	}
	if flags&flagLong == 0 {
		b, err := r.br.ReadByte()
		return flags, uint64(b), whole(err)
	}
	b, err := r.br.Peek(8)
	if err != nil {
		return 0, 0, whole(err)
	}
	size = binary.BigEndian.Uint64(b)
	_, err = r.br.Discard(8)
	return flags, size, err
}

// command reads the body of a command, which is valid until the next one.
func (r *reader) command(size uint64) ([]byte, error) {
	if size > MaxCommand {
		return nil, unexpected("a command within the limit", "one of %d bytes, where %d are the limit", size, MaxCommand)
	}
	var err error
	r.scratch, err = r.body(r.scratch, int(size))
	return r.scratch, err
}

// body reads size bytes into the memory of dst.
func (r *reader) body(dst []byte, size int) ([]byte, error) {
	if dst == nil {
		dst = []byte{}
	}
	dst = dst[:0]
	for len(dst) < size {
		n := size - len(dst)
		if cap(dst) < size {
			n = min(n, max(len(dst), bodyStep))
			dst = slices.Grow(dst, n)
		}
		k, err := io.ReadFull(r.br, dst[len(dst):len(dst)+n])
		dst = dst[:len(dst)+k]
		if err != nil {
			return dst, whole(err)
		}
	}
	return dst, nil
}

// whole is the error of a stream that must not end here.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
