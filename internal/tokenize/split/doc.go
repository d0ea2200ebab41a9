// Package split cuts text into the pieces that a tokenizer's model then encodes one
// by one: the pre_tokenizer of a tokenizer.json, piece for piece as the tokenizers
// library does it.
//
// Parse compiles the member into a Plan. The patterns of the known model families
// have hand-written scanners; where such a scanner is all there is to a plan,
// Plan.Next hands it out, and the pieces are found without storing them. Every plan
// can Append its pieces to a list. A pattern that is not known runs on a general
// regex engine; what cannot be done exactly does not load.
//
// No scanner looks at text before the piece it is asked for, so the pieces from a
// boundary on depend only on the text from there. What a piece may depend on is the
// text behind it; Plan.SafeCut knows places where it does not.
//
// Text is expected to be UTF-8; a byte that is not part of a valid sequence counts
// as one U+FFFD.
package split
