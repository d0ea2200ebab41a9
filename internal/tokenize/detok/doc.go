// Package detok turns token ids back into text: the decoders of tokenizer.json,
// for a whole sequence and token by token.
//
// A [Decoder] is read from the file's decoder member by [Parse]. [Decoder.Decode]
// gives the text of a sequence of ids, equal to what the Hugging Face library
// gives. A [Stream] takes the ids one at a time and gives each part of the text as
// soon as no later token can change it.
//
// A decoder is a chain of steps over a list of tokens whose results are put
// together in the end. Some steps put the tokens together themselves (Fuse,
// ByteLevel); what comes after such a step sees one long text. So a chain has two
// halves: steps that act on one token after another, and filters that act on the
// joined text as it grows. Every step is written as a machine that takes a little
// and gives a little, and Decode runs the same machines as Stream. The exceptions
// are a regular expression and a byte alphabet after the join, which need the whole
// text before they can say anything: a Stream over such a chain gives everything at
// the end.
package detok
