// Package model holds the tokenizer models that look pieces of text up in a
// vocabulary rather than merge them: [Unigram], which takes the likeliest way to cut
// a piece into tokens, and [WordPiece], which takes the longest token again and
// again. Both give the ids that the Hugging Face library gives.
package model

import "errors"

// ErrNoUnknown is returned for text that the vocabulary cannot spell when it has no
// token for the unknown.
var ErrNoUnknown = errors.New("text is not in the vocabulary, and the vocabulary has no unknown token")
