// Package router decides where a request runs and keeps count of what runs where.
//
// A [Router] knows the workers (watch.go) and groups the ranks that serve the
// same model with the same block size and tokenizer into a pool (pool.go).
// [Router.Place] picks one rank by the configured [Mode] (choice.go and gather.go, and
// pick.go for those that know no cost) and books the request on it in the same critical section;
// the [Placement] it returns is the only way to release that booking. Where there is a
// queue, requests wait in line before (line.go). What a decision was made of is kept
// and explained (record.go, ring.go), and compared with what the engine says it found
// in its cache (truth.go). Bookings for requests that somebody else runs have leases
// (service.go).
//
// A model stays known while a worker has it, reachable or not, and for a while after
// (forget.go).
//
// Three facts about a worker are kept apart, because they come from different
// sources and end at different times:
//
//   - discovered: it answered and said what it serves;
//   - inhibited: a request or probe just failed on it, until a deadline or until
//     a probe succeeds;
//   - overloaded: its load is above a busy threshold, until the load falls.
//
// Selection sees all three.
package router
