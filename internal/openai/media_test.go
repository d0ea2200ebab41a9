package openai

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEachMedia(t *testing.T) {
	for _, tc := range []struct {
		name, messages string
		want           []string // the parts, with their names before them
	}{
		{"text", `[{"role":"user","content":"an image_url"}]`, nil},
		{"text parts", `[{"content":[{"type":"text","text":"a"},{"type":"input_text","text":"b"},"c",{"type":"refusal","refusal":"d"}]}]`, nil},
		{"an image", `[{"content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]}]`,
			[]string{`{"type":"image_url","image_url":{"url":"u"}}`}},
		{"two messages", `[{"content":[{"type":"input_audio","input_audio":{}}]} , {"role":"user","content":[ {"type":"video_url"} ]}]`,
			[]string{`{"type":"input_audio","input_audio":{}}`, `{"type":"video_url"}`}},
		{"no type", `[{"content":[{"image_url":"u"}]}]`, []string{`{"image_url":"u"}`}},
		{"a kind that nobody knows", `[{"content":[{"type":"smell"}]}]`, []string{`{"type":"smell"}`}},
		{"a type that is no string", `[{"content":[{"type":1}]}]`, []string{`{"type":1}`}},
		{"named", `[{"content":[{"type":"image_url","uuid":"cat","image_url":null}]}]`,
			[]string{`"cat"{"type":"image_url","uuid":"cat","image_url":null}`}},
		{"a name makes the keys count", `[{"content":[{"type":"text","image_url":"u","uuid":"x"}]}]`,
			[]string{`"x"{"type":"text","image_url":"u","uuid":"x"}`}},
		{"escapes", `[{"c\u006fntent":[{"t\u0079pe":"t\u0065xt"},{"type":"im\u0061ge_url"}]}]`, []string{`{"type":"im\u0061ge_url"}`}},
		{"parts elsewhere", `[{"tool_calls":[{"type":"function"}],"content":null}]`, nil},
		{"no messages", `"image_url"`, nil},
		{"no objects", `[1,"a",[{"content":[{"type":"image_url"}]}]]`, nil},
		{"cut off", `[{"content":[{"type":"image_url"},`, []string{`{"type":"image_url"}`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			EachMedia(Value(tc.messages), func(m Media) bool {
				got = append(got, string(m.Name)+tc.messages[m.Start:m.End])
				return true
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEachMediaStops(t *testing.T) {
	n := 0
	EachMedia(Value(`[{"content":[{"type":"a"},{"type":"b"}]},{"content":[{"type":"c"}]}]`), func(Media) bool {
		n++
		return n < 2
	})
	if n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

func TestEachMediaAllocatesNothing(t *testing.T) {
	messages := Value(`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]}]`)
	seen := 0
	if n := testing.AllocsPerRun(10, func() { EachMedia(messages, func(Media) bool { seen++; return true }) }); n > 0 || seen == 0 {
		t.Errorf("%v allocations, %d parts seen", n, seen)
	}
}
