package frontend

import (
	"encoding/hex"
	"math/rand/v2"
	"net/http"
)

// The headers that name a request.
const (
	headerRequestID   = "Request-Id"
	headerOldID       = "X-Dynamo-Request-Id" // deprecated, still understood
	headerXRequestID  = "X-Request-Id"        // the client's own; echoed, never used as id
	headerTraceparent = "Traceparent"
	headerTracestate  = "Tracestate"
)

// requestID returns the id of a request: the client's if it is a UUID, else a
// new one.
func requestID(h http.Header) string {
	for _, name := range [...]string{headerRequestID, headerOldID} {
		if v := h[name]; len(v) > 0 && isUUID(v[0]) {
			return v[0]
		}
	}
	return newUUID()
}

// attemptID returns a name for one attempt at the request with that id. All have the
// same length: engines that abort by the beginning of a name hit no other. Clients may
// use an id twice, and engines refuse what they are already working on, so the ids alone
// would not do.
func (s *Server) attemptID(id string) string {
	b := make([]byte, 0, 48)
	b = append(append(b, id...), '-')
	n := s.asked.Add(1)
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[n>>shift&15])
	}
	return string(b)
}

// newUUID returns a random UUID, version 4. Ids need to be distinct, not secret.
func newUUID() string {
	var b [16]byte
	hi, lo := rand.Uint64(), rand.Uint64()
	for i := range 8 {
		b[i] = byte(hi >> (8 * i))
		b[8+i] = byte(lo >> (8 * i))
	}
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[0:8], b[0:4])
	hex.Encode(s[9:13], b[4:6])
	hex.Encode(s[14:18], b[6:8])
	hex.Encode(s[19:23], b[8:10])
	hex.Encode(s[24:36], b[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// isUUID reports whether s has the form of a UUID.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
			continue
		}
		if !isHex(c) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// validTraceparent reports whether s is a version-traceid-spanid-flags header
// with ids that are not all zero.
func validTraceparent(s string) bool {
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' || len(s) > 55 && s[55] != '-' {
		return false
	}
	return hexNotZero(s[3:35]) && hexNotZero(s[36:52]) && isHex(s[0]) && isHex(s[1]) && isHex(s[53]) && isHex(s[54])
}

func hexNotZero(s string) bool {
	zero := true
	for i := range len(s) {
		if !isHex(s[i]) {
			return false
		}
		zero = zero && s[i] == '0'
	}
	return !zero
}
