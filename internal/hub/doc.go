// Package hub finds the small files of a model: its tokenizer, its chat
// templates and its configuration.
//
// [Read] takes them from disk: a directory, a single file, or a repository in the
// cache that Hugging Face's libraries share. [Client.Fetch] takes them from a Hub
// server and keeps them in that same cache, so that a model which another program
// on the machine has downloaded is not downloaded again, and the other way round.
// Weights are never touched.
//
// Three things hold for the cache, whoever dies when:
//
//   - A blob appears under its name only when its size and checksum are right, by
//     renaming a file that only one process has ever written to.
//   - In a snapshot that this package writes, the tokenizer comes last. One that
//     has a tokenizer has everything else, too.
//   - A ref names a snapshot only after that is complete.
//
// The package reads no environment on its own; [FromEnv] is for the commands.
package hub
