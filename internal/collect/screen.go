package collect

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// fit cuts lines to a width, and their number to a height, where these are above 0.
func fit(text string, width, height int) string {
	if width <= 0 && height <= 0 {
		return text
	}
	lines := slices.Collect(strings.Lines(text))
	if more := len(lines) - height; height > 0 && more > 0 {
		lines = append(lines[:height-1], fmt.Sprintf("… and %d more lines\n", more+1))
	}
	var out strings.Builder
	for _, line := range lines {
		out.WriteString(cut(strings.TrimSuffix(line, "\n"), width))
		out.WriteByte('\n')
	}
	return out.String()
}

// style is what changes how text looks, and takes no room.
var style = regexp.MustCompile(`^\x1b\[[0-9]*m`)

// cut returns a line of which at most width runes are to be seen, if that is above 0. Of
// what is left out the styles stay, so that those before are ended.
func cut(line string, width int) string {
	var out strings.Builder
	shown, last := 0, 0 // last is where the last rune that fits begins
	for rest := line; rest != ""; {
		if s := style.FindString(rest); s != "" {
			out.WriteString(s)
			rest = rest[len(s):]
			continue
		}
		_, n := utf8.DecodeRuneInString(rest)
		if shown++; shown == width {
			last = out.Len()
		}
		if width <= 0 || shown <= width {
			out.WriteString(rest[:n])
		}
		rest = rest[n:]
	}
	if width <= 0 || shown <= width {
		return line
	}
	text := out.String()
	_, n := utf8.DecodeRuneInString(text[last:])
	return text[:last] + "…" + text[last+n:]
}
