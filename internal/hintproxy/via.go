package hintproxy

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
)

// newPseudonym returns the name of a proxy in Via headers, which no other has.
func newPseudonym() string {
	var b [8]byte
	rand.Read(b[:])
	return "stator-hints-" + hex.EncodeToString(b[:])
}

// addVia notes in the headers of a request, which came by a version of HTTP, that it passed
// a proxy.
func addVia(h http.Header, major, minor int, pseudonym string) {
	version := strconv.Itoa(major)
	if major < 2 {
		version += "." + strconv.Itoa(minor)
	}
	h.Add("Via", version+" "+pseudonym)
}

// hasPassed reports whether a request passed a proxy before.
func hasPassed(h http.Header, pseudonym string) bool {
	for _, v := range h["Via"] {
		if strings.Contains(v, pseudonym) {
			return true
		}
	}
	return false
}
