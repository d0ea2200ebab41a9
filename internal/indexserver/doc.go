// Package indexserver is the index of KV-cache blocks as a service of its own, for
// routers that do not keep one: who holds how much of a prompt, over HTTP.
//
// A [Server] has an index for each model and routing group. Workers are announced
// with POST /register. What they say about their caches is read from the event sockets
// that they were registered with (package kvlink), or comes in with POST /events; a rank
// has one source. POST /query answers how many tokens of a prompt each holds. GET /dump
// writes everything out while it goes on, POST /restore takes it in elsewhere. The
// description of all routes is at /openapi.json.
//
// An answer is a hint, not a proof of what a cache holds: hashes of blocks can be
// forged by who knows the tokens. Tenants that must not learn of each other need a
// cache salt.
package indexserver
