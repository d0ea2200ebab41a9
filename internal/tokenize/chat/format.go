package chat

import (
	"regexp"
	"strings"
)

// loopsOverContent tells whether a template takes content as a list of parts, in
// SGLang's way: it speaks of something to see or hear, or it loops over the
// content of a message.
func loopsOverContent(src string) bool {
	for _, word := range [...]string{"image", "audio", "video", "vision"} {
		if strings.Contains(src, word) {
			return true
		}
	}
	src = outside.ReplaceAllString(src, "")
	for _, m := range contentLoop.FindAllStringSubmatch(src, -1) {
		if wholeList.MatchString(m[1]) {
			return true
		}
	}
	return false
}

var (
	// outside is what looks like a template and is none: comments and raw text.
	outside = regexp.MustCompile(`(?s)\{#.*?#\}|\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}`)
	// contentLoop finds a loop over the content of a message, and what follows in
	// its tag.
	contentLoop = regexp.MustCompile(`(?s)\{%[-+]?\s*for\s[^%]*?\sin\s*\(?\s*(?:message|msg|m)\s*(?:\.\s*content\b|\[\s*(?:'content'|"content")\s*\])\s*\)?(.*?)[-+]?%\}`)
	// wholeList accepts what leaves it a loop over that list: filters, tests and
	// slices, and the conditions of the loop.
	wholeList = regexp.MustCompile(`(?s)^\s*(?:\[[^\]:]*:[^\]]*\]\s*)*(?:$|\||is\s|if\s|recursive\b)`)
)
