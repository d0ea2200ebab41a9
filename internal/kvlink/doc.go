// Package kvlink connects the event sockets of engines to an index.
//
// A worker that was identified says where its ranks publish what becomes of their
// caches, or that it is to be asked ([Links.Follow]). Each socket has one goroutine
// that reads and does nothing else, because a publisher drops what a slow reader does
// not take. What it reads goes into the bounded queue of a [kvfeed.Hub], which judges
// the numbers, has gaps filled from the engine's replay socket where there is one, and
// applies the batches in order.
//
// Batches travel undecoded and are decoded when they are applied. What a decoder has
// learned is then exactly what the engine said up to there, however the batches came:
// gaps are filled before what follows them is read, and a decoder is reset in the same
// breath as its rank.
//
// What can be known about a restart of an engine, in the order of trust:
//
//   - A number that is not above the last one is of a new life.
//   - A connection does not outlive the engine. When one was made anew, and at each
//     recovery, the replay socket is asked for the last batch that was applied as well:
//     if it differs, or is not there yet, the engine began anew.
//   - Whoever identifies the engine may notice, and says so to Follow.
//
// A new life has a new epoch, and its rank begins empty.
package kvlink
