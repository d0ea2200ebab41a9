package frontend

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/learn"
	"github.com/stator-ai/stator/internal/openai"
)

func TestChatKey(t *testing.T) {
	const system, user, reply = `{"role":"system","content":"s"}`, `{"content":"hi","role":"user"}`, `{"role":"assistant","content":"a"}`
	key := func(tools string, messages ...string) learn.Key {
		var k learn.Key
		chatKey(&k, openai.Value(tools), openai.Value("["+strings.Join(messages, ",")+"]"))
		return k
	}
	first := key("", system, user)
	if first.Turn != learn.FirstTurn || first.Conversation == (learn.Hash{}) {
		t.Errorf("%+v", first)
	}
	text := strings.Repeat("x", maxAsked)
	long, longer := `{"role":"user","content":"`+text+`"}`, `{"role":"user","content":"`+text+text+`"}`
	huge := fmt.Sprintf(`{"role":"system","content":%q}`, strings.Repeat("s", maxBeginning))
	many := slices.Repeat([]string{reply}, maxMessages)
	const nested = `{"role":"assistant","tool_calls":[{"role":"user"}],"x":{"role":"user"},"user":1,"content":"user"}`
	const quoted = `{"role":"assistant","content":"\\\"}],{\"role\":\"user\",\"role","name":"user"}`
	same := func(a, b learn.Key) bool { return a.Conversation == b.Conversation }
	for _, row := range []struct {
		name               string
		got                learn.Key
		family, chat, turn any
	}{
		{"again", key("", system, user), true, true, learn.FirstTurn},
		{"later", key("", system, user, reply, user), true, true, learn.LaterTurn},
		{"later, and long", key("", system, user, reply, longer), true, true, learn.LaterTurn},
		{"another user", key("", system, `{"role":"user","content":"ho"}`), true, false, learn.FirstTurn},
		{"long", key("", system, long), true, false, learn.AnyTurn},
		{"tools", key(`[{"type":"function"}]`, system, user), false, false, learn.FirstTurn},
		{"no tools", key("null", system, user), true, true, learn.FirstTurn},
		{"other instructions", key("", `{"role":"developer","content":"s"}`, user), false, false, learn.FirstTurn},
		{"no instructions", key("", user), false, false, learn.FirstTurn},
		{"no user", key("", system), true, false, learn.FirstTurn},
		{"no message", key("", `7`, system, user), false, false, learn.FirstTurn},
		{"no messages", key("", `"\"role\":\"user\""`, `["role","user"]`, `[]`), false, false, learn.FirstTurn},
		{"empty message", key("", `{}`), false, false, learn.FirstTurn},
		{"none of a user", key("", system, nested, quoted), false, false, learn.FirstTurn},
		{"long instructions", key("", huge, user), false, false, learn.AnyTurn},
		{"many instructions", key("", append(many, user)...), false, false, learn.AnyTurn},
	} {
		if row.got.Turn != row.turn || (row.got.Family == first.Family) != row.family || same(row.got, first) != row.chat {
			t.Errorf("%s: same family %v, same conversation %v, turn %d", row.name,
				row.got.Family == first.Family, same(row.got, first), row.got.Turn)
		}
	}
	if k := key("", nested, quoted, user, reply); k.Turn != learn.LaterTurn || same(k, key("", nested, user)) || !same(k, key("", nested, quoted, user)) {
		t.Errorf("behind what looks like a message of a user: %+v", k)
	}
	if a, b := key("", many[1:]...), key("", append(many[1:], user)...); a.Family != b.Family || b.Turn != learn.FirstTurn {
		t.Error("as many messages as are looked at")
	}

	// What lies beyond what is looked at makes no other chat, and what follows is not reached.
	for _, row := range []struct {
		name string
		a, b learn.Key
	}{
		{"a long message", key("", system, long), key("", system, long, reply, user)},
		{"longer ones", key("", system, long), key("", system, longer, reply)},
		{"long instructions", key("", huge, user), key("", huge, reply, longer)},
		{"many instructions", key("", append(many, user)...), key("", append(many, long, user)...)},
		{"long tools", key("["+text+text, user), key("["+text+text+text, user)},
	} {
		if row.a != row.b {
			t.Errorf("%s: %+v, then %+v", row.name, row.a, row.b)
		}
	}
	if last := `{"content":"` + text + `","role":"user"}`; !same(key("", last), key("", last, reply)) || key("", last, reply).Turn != learn.LaterTurn {
		t.Error("a role at the end of a long message was not seen")
	}
}

// Messages are read as a parser reads them.
func TestChatKeyAgainstParser(t *testing.T) {
	messages := []string{
		`{"role":"system","content":"s"}`, `{ "content" : "[{\\" , "role" : "assistant" }`, `{}`, `[]`,
		`{"role":"assistant","tool_calls":[{"role":"user","content":"}"}],"x":{"role":"user"},"content":"user"}`,
		`{"content":"\"}],{\"role\":\"user\",\"role","name":"user"}`, `{"role":["user"],"user":"role"}`,
		`["role", "user"]`, `{"x":1.5e3,"role":null}`, `{"role":"user","content":"hi"}`,
		"{\n\t\"content\": [{\"type\": \"text\", \"text\": \"\\\\\"}],\r\n\t\"role\" : \"user\"\n}",
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		chat := "["
		for i := range 1 + rng.IntN(6) {
			if i > 0 {
				chat += ","
			}
			space := []string{"", "", " ", "\r\n\t"}[rng.IntN(4)]
			chat += space + messages[min(rng.IntN(len(messages)), rng.IntN(len(messages)))] + space
		}
		chat += "]"
		var want, got learn.Key
		found := false
		want.Turn = learn.FirstTurn
		if err := openai.Value(chat).Elements(func(m openai.Value) bool {
			if found {
				want.Turn = learn.LaterTurn
				return false
			}
			o, err := openai.ParseObject(m)
			if err == nil && string(o.Get("role")) == `"user"` {
				want.Conversation = want.Family.AddString(namedChat).Add(m)
				found = true
				return true
			}
			want.Family = want.Family.Add(m)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if !found {
			want.Conversation = want.Family.AddString(namedChat)
		}
		if chatKey(&got, nil, openai.Value(chat)); got != want {
			t.Fatalf("%s\ngot  %+v\nwant %+v", chat, got, want)
		}
	}
}

// Whatever a chat is like, its key takes no memory.
func TestChatKeyAllocations(t *testing.T) {
	for name, chat := range longChats() {
		var k learn.Key
		if n := testing.AllocsPerRun(5, func() { chatKey(&k, nil, chat) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// longChats returns chats that are long in different ways.
func longChats() map[string]openai.Value {
	const user, reply, tool = `{"role":"user","content":"hello"}`, `{"role":"assistant","content":"ok"}`, `{"role":"tool","content":"x"}`
	prose := strings.Repeat(`She said: \"It was the evening of that day, and the garden was quiet.\" `, 200_000/71)
	message := func(role string) string { return fmt.Sprintf(`{"role":"%s","content":"%s"}`, role, prose) }
	chat := func(messages ...string) openai.Value { return openai.Value("[" + strings.Join(messages, ",") + "]") }
	return map[string]openai.Value{
		"short":                     chat(user),
		"200 KB of a user":          chat(message("user")),
		"200 KB of instructions":    chat(message("system"), user),
		"200 KB after the first":    chat(user, message("assistant"), user),
		"200 KB, role at the end":   chat(fmt.Sprintf(`{"content":"%s","role":"user"}`, prose)),
		"6000 turns":                chat(slices.Repeat([]string{user, reply}, 3000)...),
		"20000 messages, no user's": chat(slices.Repeat([]string{tool}, 20000)...),
	}
}

// BenchmarkChatKey is what a server that learns pays to know which conversation a request is
// of, beside what it pays to read the request.
func BenchmarkChatKey(b *testing.B) {
	chats := longChats()
	for _, name := range slices.Sorted(maps.Keys(chats)) {
		body := fmt.Appendf(nil, `{"model":"m","messages":%s}`, chats[name])
		r, err := openai.ParseRequest(openai.Chat, body)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/key", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var k learn.Key
				chatKey(&k, nil, r.Messages)
			}
		})
		b.Run(name+"/parse", func(b *testing.B) {
			for b.Loop() {
				openai.ParseRequest(openai.Chat, body)
			}
		})
	}
}
