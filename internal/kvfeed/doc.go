// Package kvfeed follows what engines say about their caches and keeps an index of
// it true although messages are lost, repeated and late, and engines restart.
//
// Three nouns. A [Cursor] judges one sequence number. A [Feed] is the state machine
// of one source: batches and answers go in, actions come out; it has no clock, no
// goroutine and no lock. A [Hub] is the shell around many feeds: a bounded queue
// and a goroutine for each source, recoveries beside them, and a [Target] that the
// actions change. [Local] is the other end of a recovery: what a companion beside
// an engine remembers so that it can answer.
//
// What holds for every source:
//
//   - A batch is applied once and in order. What was seen before is ignored.
//   - After a gap nothing is applied until it is filled, where the source can be
//     asked; batches that come meanwhile are held back and follow in order.
//   - A dump replaces the rank, never adds to it, and says up to which batch it
//     knows.
//   - An answer that knows nothing is taken for an empty cache only as long as the
//     source has said nothing.
//   - A source that restarted has an empty cache, and so has its rank.
//   - Whoever cannot be asked, or does not answer, leaves a rank that is marked:
//     dirty when it may be wrong, degraded when it was cleared and started over.
package kvfeed
