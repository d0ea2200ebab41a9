package chat

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/jinja"
)

// finalTag marks the end of the message to continue while a template prints it.
// Templates that trim content take its space away, which tells that they do.
const finalTag = "CONTINUE_FINAL_MESSAGE_TAG "

// openFinal returns messages with the tag at the end of the last one's text, and
// that text without it. Messages is left as it was.
func openFinal(messages []jinja.Value) ([]jinja.Value, string, error) {
	last := len(messages) - 1
	m := messages[last].(*jinja.Dict)
	var text string
	content := get(m, "content")
	switch v := content.(type) {
	case string:
		text = v
		content = v + finalTag
	case *jinja.List:
		i := len(v.Items) - 1
		for i >= 0 && !saysText(v.Items[i]) {
			i--
		}
		if i < 0 {
			return nil, "", errNoText
		}
		part, ok := v.Items[i].(*jinja.Dict)
		if !ok {
			return nil, "", errors.New("continue_final_message: a part of the last message is not an object")
		}
		if text, ok = get(part, "text").(string); !ok {
			return nil, "", errors.New("continue_final_message: a part of the last message has a text that is not a string")
		}
		parts := slices.Clone(v.Items)
		parts[i] = with(part, "text", text+finalTag)
		content = &jinja.List{Items: parts}
	default:
		return nil, "", errNoText
	}
	messages = slices.Clone(messages)
	messages[last] = with(m, "content", content)
	return messages, text, nil
}

// saysText reports whether a part is taken for one with a text. The original asks
// whether "text" is in it, which strings and lists answer, too; being no objects
// they fail afterwards.
func saysText(part jinja.Value) bool {
	switch p := part.(type) {
	case *jinja.Dict:
		_, ok := p.Get("text")
		return ok
	case string:
		return strings.Contains(p, "text")
	case *jinja.List:
		return slices.Contains(p.Items, jinja.Value("text"))
	default:
		return true
	}
}

var errNoText = errors.New("continue_final_message: the last message has no text to continue")

// cutFinal cuts what a template printed behind the text of the last message. The
// text must be there in full, apart from white space at its ends.
func cutFinal(rendered []byte, final string) ([]byte, error) {
	tag := strings.TrimSuffix(finalTag, " ")
	at := bytes.LastIndex(rendered, []byte(tag))
	if at < 0 || !bytes.Contains(rendered, []byte(strings.TrimFunc(final, isSpace))) {
		return nil, errors.New("continue_final_message: the template does not print the last message as it is")
	}
	if bytes.HasPrefix(rendered[at:], []byte(finalTag)) {
		return rendered[:at], nil
	}
	return trimRight(rendered[:at]), nil
}

func trimRight(b []byte) []byte {
	for len(b) > 0 {
		r, n := utf8.DecodeLastRune(b)
		if !isSpace(r) {
			break
		}
		b = b[:len(b)-n]
	}
	return b
}

// isSpace reports what Python's str.strip takes for white space: the four
// separators before the space count, unlike in Go.
func isSpace(r rune) bool {
	switch {
	case r <= ' ':
		return r == ' ' || r >= '\t' && r <= '\r' || r >= 0x1c && r <= 0x1f
	case r >= 0x2000 && r <= 0x200a:
		return true
	}
	switch r {
	case 0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000:
		return true
	}
	return false
}
