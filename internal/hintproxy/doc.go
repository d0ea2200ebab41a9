// Package hintproxy is package hints for programs in any language: a reverse proxy that
// stands before one server and adds hints to the calls of models that pass through it.
//
// # What passes
//
// Everything: any path below the upstream's own, any method, upgrades to WebSocket, trailers,
// informational answers. Only the body of a call of a model is held back until it is whole,
// and gets hints; one that must not change or is too long, all other bodies, and all answers
// go on byte by byte as they come. A client that leaves takes its request at the upstream
// with it, and an upstream that breaks off has the client's connection break off.
//
// There is a bound on the memory for bodies that are held back; while it is used up, calls
// pass without hints. The body of a call that pauses for a minute is given up.
//
// Every request gets the proxy's entry in Via, as is the duty of a proxy, and one that has it
// already is refused: a proxy that leads to itself, by another name or through others, would
// send it around for ever. This is the one header that is added.
//
// Where a call stands is in its headers, which [hints.FromHeader] reads. Those that only the
// proxy is addressed by, X-Stator-Run, X-Stator-Path, X-Stator-Function-Id and
// X-Stator-Branch, do not go on.
//
// # What is the proxy's own
//
// Paths below [Routes] are answered here:
//
//	GET /_stator/hints/live    200 as long as the process answers
//	GET /_stator/hints/stats   what was done so far, and with which settings: [Stats]
package hintproxy
