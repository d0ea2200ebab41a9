// Package zmtp speaks ZMTP 3.0, the protocol of ZeroMQ sockets, over TCP without
// security: as much of it as engines use to publish what is in their caches.
//
// A Conn is one connection after its handshake: of a SUB socket (DialSub, or
// SubListener where publishers connect to us) or of a DEALER (DialDealer). It reads in
// the goroutine of its caller, has no queue, and does not reconnect: a connection that
// breaks is the caller's to make anew, and what was published meanwhile is lost, as with
// any PUB socket. Publisher and Router are the other ends: many peers, each with a
// bounded queue, so that one that does not read holds nobody up.
//
// Peers of ZMTP 3.0 and 3.1 are understood. Lengths that a peer announces are checked
// against limits, and memory is taken for what has arrived, not for what is announced.
// Whatever does not belong into the protocol ends the connection with a ProtocolError.
package zmtp

import (
	"fmt"
	"net"
	"time"
)

// Limits on what a peer may send. Beyond them the connection ends with a ProtocolError.
const (
	MaxMessage = 64 << 20 // bytes of the frames of a message
	MaxFrames  = 8        // frames of a message; engines send four at most
	MaxCommand = 8 << 10  // bytes of a command, the READY of the handshake included
)

const (
	// handshakeTimeout is how long a peer has for its greeting and READY.
	handshakeTimeout = 5 * time.Second
	// sendTimeout is how long a peer may take nothing of what is sent to it.
	sendTimeout = 10 * time.Second
)

// keepAlive finds out in half a minute that the machine of a peer is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// Type is the kind of a socket, spelled as in its READY command.
type Type string

// The types of sockets that talk to ours.
const (
	TypePub    Type = "PUB"
	TypeXPub   Type = "XPUB"
	TypeSub    Type = "SUB"
	TypeXSub   Type = "XSUB"
	TypeDealer Type = "DEALER"
	TypeRouter Type = "ROUTER"
	TypeReq    Type = "REQ"
	TypeRep    Type = "REP"
)

// Message is the frames of one message.
type Message [][]byte

// ProtocolError says that a peer sent something that is not ZMTP 3, that is beyond the
// limits, or that does not go with our socket. The connection is closed.
type ProtocolError struct {
	Want string // what was expected
	Got  string // what came
}

// Error returns both.
func (e *ProtocolError) Error() string {
	return "zmtp: expected " + e.Want + ", got " + e.Got
}

// unexpected makes a ProtocolError; what came is formatted.
func unexpected(want, got string, args ...any) error {
	return &ProtocolError{Want: want, Got: fmt.Sprintf(got, args...)}
}

// match reports, as an error, that sockets of two types do not talk to each other.
func match(local, peer Type) error {
	var ok bool
	var want string
	switch local {
	case TypeSub:
		ok, want = peer == TypePub || peer == TypeXPub, "a PUB or XPUB socket"
	case TypePub:
		ok, want = peer == TypeSub || peer == TypeXSub, "a SUB or XSUB socket"
	case TypeDealer:
		ok, want = peer == TypeRouter || peer == TypeDealer || peer == TypeRep, "a ROUTER, DEALER or REP socket"
	case TypeRouter:
		ok, want = peer == TypeDealer || peer == TypeReq || peer == TypeRouter, "a DEALER, REQ or ROUTER socket"
	}
	if !ok {
		return unexpected(want, "a socket of type %q", peer)
	}
	return nil
}
