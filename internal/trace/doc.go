// Package trace records requests and reads traces of them.
//
// A [Row] is all that is known about one finished request: what came in, every
// input of the decision where to run it, the decision, and what came of it. A
// [Writer] appends rows to a file of JSON lines without ever holding up the
// request that they tell of. Prompts are recorded as block hashes and lengths;
// their text is in a row only if whoever fills it in puts it there.
//
// A [Trace] is the traffic alone, for replay and statistics: arrivals, lengths,
// and which requests share which blocks of their prompts. [Read] makes one from
// rows of this package, from Mooncake's format, or from Dynamo's request trace.
// Rows that are not one request that ran are no part of it: those of requests that
// were refused, or that have several prompts or ask for several answers, and those
// that are too long or were cut off. They are counted, by reason.
//
// [Trace.Content] says what the blocks of a request are for an engine whose
// blocks have another size; [Stat], [IdealHits] and [LRUHits] say what a trace is
// like.
//
// Nothing here opens a connection or writes a log.
package trace
