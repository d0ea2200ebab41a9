package frontend

import (
	"bytes"

	"github.com/stator-ai/stator/internal/learn"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
)

// How much of a chat is looked at to tell it from others.
const (
	// maxBeginning is how many bytes of the messages, and of the tools.
	maxBeginning = 2 * router.MaxText
	// maxAsked is how many bytes of the first message of a user.
	maxAsked = router.MaxText
	// maxMessages is how many messages, that one included.
	maxMessages = 64
)

// namedChat is what conversations are called that have no name.
const namedChat = "chat"

// chatKey fills in what a chat's beginning says. Chats whose beginnings are equal as far as
// they are looked at are the same. One that ends with its first message of a user begins a
// conversation. Where it is not seen what follows that message, the turn is any.
func chatKey(k *learn.Key, tools, messages openai.Value) {
	if tools.Present() {
		k.Family = k.Family.Add(tools[:min(len(tools), maxBeginning)])
	}
	rest := []byte(messages[:min(len(messages), maxBeginning)])
	for range maxMessages {
		if len(rest) == 0 {
			break
		}
		rest = trimSpace(rest[1:]) // behind the bracket, or a comma
		n, user, whole := firstMessage(rest)
		m := rest[:n]
		rest = trimSpace(rest[n:])
		last := whole && len(rest) > 0 && rest[0] == ']'
		more := whole && len(rest) > 0 && !last
		if last {
			k.Turn = learn.FirstTurn
		}
		if user {
			if more {
				k.Turn = learn.LaterTurn
			}
			k.Conversation = k.Family.AddString(namedChat).Add(m[:min(n, maxAsked)])
			return
		}
		k.Family = k.Family.Add(m)
		if !more {
			break
		}
	}
	k.Conversation = k.Family.AddString(namedChat)
}

// firstMessage returns the length of the message that b begins with, and whether it is one of
// a user. It is not whole if b ends before it does, or if it says within maxAsked that it is
// a user's and goes on beyond: what is not looked at is not walked over either. What is there
// is known to be well-formed. A role that is spelled with escapes is not recognized.
func firstMessage(b []byte) (n int, user, whole bool) {
	var text, member []byte // the latest string of the message itself, and the member it is in
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			size := stringLen(b[i:])
			if size == 0 {
				return len(b), user, false
			}
			if depth == 1 {
				text = b[i : i+size]
				if string(text) == `"user"` && string(member) == `"role"` {
					user = true
					if i+size <= maxAsked {
						b = b[:min(len(b), maxAsked)]
					}
				}
			}
			i += size - 1
		case ':':
			if depth == 1 {
				member = text
			}
		case '{', '[':
			depth++
		case '}', ']':
			switch depth {
			case 0: // the end of the messages, behind one that is no object
				return i, user, true
			case 1:
				return i + 1, user, true
			}
			depth--
		case ',':
			switch depth {
			case 0:
				return i, user, true
			case 1:
				member = nil
			}
		}
	}
	return len(b), user, false
}

// stringLen returns the length of the JSON string that b begins with, or 0 if it has no end.
func stringLen(b []byte) int {
	for i := 1; ; {
		quote := bytes.IndexByte(b[i:], '"')
		if quote < 0 {
			return 0
		}
		i += quote
		escapes := 0
		for b[i-1-escapes] == '\\' { // the opening quote is none
			escapes++
		}
		i++
		if escapes%2 == 0 {
			return i
		}
	}
}

func trimSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }
