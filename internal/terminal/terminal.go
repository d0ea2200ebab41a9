// Package terminal makes text of others fit to be shown to people.
package terminal

import (
	"strings"
	"unicode"
)

// Line returns text in one line, without anything that is not to be seen: what an engine, a
// server or a file says must not move the cursor or change the title of a window.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return '\uFFFD'
		}
		return r
	}, text)
}
