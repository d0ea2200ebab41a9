// Package replay runs a trace against simulated engines in virtual time, with
// requests placed by the router that serves real ones.
//
// [Run] is one loop over events on one goroutine. Nothing waits: the clock jumps
// from one event to the next, so an hour of traffic takes seconds, and the same
// trace, configuration and seeds give the same log to the byte, decisions included.
//
// In mode kv the router is told what real engines would tell it: changes of caches
// as passes make them, first tokens and ends of answers, and at the end how much of
// the prompt was found in the cache.
//
// At one instant, passes that end come first, in the order in which they began, each
// followed by the requests for which it made room in the router's queue; then
// requests that arrive, in the order of the trace; then every idle engine that has
// work begins a pass, the lowest first. A pass is decided when it begins, so what
// arrives during it has to wait.
package replay
