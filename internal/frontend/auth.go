package frontend

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/stator-ai/stator/internal/openai"
)

// Key is an API key. The key itself is not kept, only its hash.
type Key struct {
	Name    string
	Hash    [sha256.Size]byte // SHA-256 of the key
	Trusted bool              // may pin workers, override the router and name a tenant
	Admin   bool              // may use the admin routes
	Tenant  string            // keeps the caches of its requests apart; empty = none
	// PreferSensitivity takes latency_sensitivity, and not priority, for the head start
	// in the queue: for clients that send both and count priority downwards.
	PreferSensitivity bool
}

// HashKey returns what is kept of a key.
func HashKey(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

type keyring []Key

// find returns the key with that text. It compares with every key, in constant
// time, so that its duration says nothing about the keys.
func (k keyring) find(text string) *Key {
	hash := HashKey(text)
	found := -1
	for i := range k {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], k[i].Hash[:]), i, found)
	}
	if found < 0 {
		return nil
	}
	return &k[found]
}

// authorize returns the key a request came with, if it opens the door.
func (k keyring) authorize(h http.Header, need access) (*Key, *openai.Error) {
	text := bearer(h)
	if text == "" {
		return nil, &openai.Error{Code: openai.CodeInvalidAPIKey,
			Message: "no API key: send it as 'Authorization: Bearer KEY'"}
	}
	key := k.find(text)
	switch {
	case key == nil:
		return nil, &openai.Error{Code: openai.CodeInvalidAPIKey, Message: "this API key is not known"}
	case need == admin && !key.Admin:
		return nil, &openai.Error{Code: openai.CodeForbidden, Message: "this route needs an admin key"}
	}
	return key, nil
}

// bearer returns the key of a request, from the Authorization header or from
// x-api-key.
func bearer(h http.Header) string {
	if auth := h.Get("Authorization"); auth != "" {
		scheme, rest, _ := strings.Cut(auth, " ")
		if strings.EqualFold(scheme, "bearer") {
			return strings.TrimSpace(rest)
		}
		return ""
	}
	return h.Get("X-Api-Key")
}
