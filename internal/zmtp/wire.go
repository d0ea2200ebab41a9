package zmtp

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// The bits of a frame's first byte. Its length follows, in one byte or, with flagLong,
// in eight.
const (
	flagMore    = 1 << 0 // another frame of the message follows
	flagLong    = 1 << 1
	flagCommand = 1 << 2
	flagsKnown  = flagMore | flagLong | flagCommand
)

const (
	greetingSize  = 64
	signatureSize = 10
	mechanismSize = 20
)

// appendGreeting appends what both sides send first: signature, version 3.0, mechanism
// NULL, and zeros. Minor version 0 makes peers subscribe with messages, which every
// version understands.
func appendGreeting(dst []byte) []byte {
	var g [greetingSize]byte
	g[0], g[8], g[9] = 0xff, 0x01, 0x7f
	g[10] = 3
	copy(g[12:], "NULL")
	return append(dst, g[:]...)
}

// appendReady appends the READY command of a socket. Sockets that have an identity send
// an empty one, as libzmq does.
func appendReady(dst []byte, socket Type) []byte {
	body := append([]byte(nil), "\x05READY"...)
	body = appendProperty(body, "Socket-Type", string(socket))
	if socket == TypeDealer || socket == TypeRouter {
		body = appendProperty(body, "Identity", "")
	}
	return appendFrame(dst, flagCommand, body)
}

func appendProperty(dst []byte, name, value string) []byte {
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// appendCommand appends a command frame.
func appendCommand(dst []byte, name string, data []byte) []byte {
	body := make([]byte, 0, 1+len(name)+len(data))
	body = append(body, byte(len(name)))
	body = append(body, name...)
	return appendFrame(dst, flagCommand, append(body, data...))
}

// appendSubscription appends the message that subscribes to a topic.
func appendSubscription(dst []byte, topic string) []byte {
	return appendFrame(dst, 0, append([]byte{1}, topic...))
}

// appendMessage appends the frames of a message.
func appendMessage(dst []byte, frames [][]byte) []byte {
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		dst = appendFrame(dst, flags, f)
	}
	return dst
}

func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		dst = append(dst, flags|flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(body)))
	} else {
		dst = append(dst, flags, byte(len(body)))
	}
	return append(dst, body...)
}

// messageSize is at least the length of what appendMessage appends.
func messageSize(frames [][]byte) int {
	n := 0
	for _, f := range frames {
		n += 9 + len(f)
	}
	return n
}

// checkMechanism judges what a greeting says about security.
func checkMechanism(g *[greetingSize]byte) error {
	mechanism := bytes.TrimRight(g[12:12+mechanismSize], "\x00")
	if string(mechanism) != "NULL" {
		return unexpected("the mechanism NULL, which is no security", "the mechanism %q", mechanism)
	}
	return nil
}

// splitCommand returns the name of a command and what follows.
func splitCommand(body []byte) (name, data []byte, err error) {
	if len(body) == 0 {
		return nil, nil, unexpected("a command with a name", "an empty one")
	}
	n := int(body[0])
	if n == 0 || n > len(body)-1 {
		return nil, nil, unexpected("a command with a name", "a name of %d bytes in a command of %d", n, len(body))
	}
	return body[1 : 1+n], body[1+n:], nil
}

// parseReady returns the type of the socket that sent a READY command. Properties that
// mean nothing to us are passed over.
func parseReady(body []byte) (Type, error) {
	name, data, err := splitCommand(body)
	if err != nil {
		return "", err
	}
	switch string(name) {
	case "READY":
	case "ERROR":
		return "", unexpected("the command READY", "the error %q", reason(data))
	default:
		return "", unexpected("the command READY", "the command %q", name)
	}
	var socket Type
	for len(data) > 0 {
		n := int(data[0])
		if n == 0 || len(data) < 1+n+4 {
			return "", unexpected("READY with named properties", "a property name of %d bytes where %d are left", n, len(data)-1)
		}
		key := string(data[1 : 1+n])
		size := binary.BigEndian.Uint32(data[1+n:])
		data = data[1+n+4:]
		if uint64(size) > uint64(len(data)) {
			return "", unexpected("READY with whole properties", "%d bytes for %q where %d are left", size, key, len(data))
		}
		if strings.EqualFold(key, "Socket-Type") {
			socket = Type(data[:size])
		}
		data = data[size:]
	}
	if socket == "" {
		return "", unexpected("READY with a Socket-Type", "none")
	}
	return socket, nil
}

// reason returns the text of an ERROR command.
func reason(data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	return data[1:min(len(data), 1+int(data[0]))]
}
