// Package normal rewrites text as the normalizer of a tokenizer.json asks for,
// before it is split and looked up.
//
// [Parse] compiles the member of the file into a [Normalizer]. What comes out is
// byte for byte what the tokenizers library gives, which is not always what
// Unicode says today: the library's parts were built with different versions of
// the character data (9 for the normal forms and StripAccents, 8 for the
// categories of BertNormalizer, 17 for lower case and grapheme clusters). The
// tables of this package are made of those, by the command in gen.
//
// Most text is already in form. Every normalizer first looks for something to do
// and returns its input when there is nothing.
package normal

// Normalizer rewrites one segment of text. Implementations are safe for
// concurrent use.
type Normalizer interface {
	// Normalize returns src itself when it is already in form, otherwise the
	// new text, appended to dst[:0]. Src is only read and does not overlap dst.
	// Bytes of src that are not UTF-8 are kept as they are.
	Normalize(dst, src []byte) []byte
}
