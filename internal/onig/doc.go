// Package onig matches the regular expressions that tokenizer files carry. They
// are written for Oniguruma and mean what Oniguruma 6.9 in its own syntax, over
// UTF-8 and Unicode 16, makes of them: leftmost match, first alternative first.
//
// A Regexp is a compiled pattern. A Matcher finds its matches in one text. Find
// and All are the short forms.
//
// Oniguruma backtracks and may need exponential time. Here every choice point
// remembers at which positions of the text it was already tried in vain, which is
// sound because there are no back-references: time is linear in the text, for any
// pattern. Memory is the remembered positions from the start of the current
// attempt on, a few bits each.
//
// Not supported, although Oniguruma knows it: back-references, subexpression calls,
// conditionals, absent operators, callouts, \K, \G, \X, \y, \Y, the options C, I, L
// and y, sequences in \x{…} and \o{…}, escaped bytes that are not UTF-8, properties
// other than general categories, scripts by their full name and the POSIX classes,
// look-behind of more than a few hundred characters, and three places where Oniguruma
// contradicts itself: \R in a look-behind, a word boundary in a look-behind of
// varying length, and an assertion before a leading .*. The error for these is an
// ErrUnsupported, names the construct and says where it stands. Nothing is
// approximated.
package onig
