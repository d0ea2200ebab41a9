package frontend

import (
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/simserver"
)

func image(url string) string {
	return `{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + url + `"}},{"type":"text","text":"what is this?"}]}`
}

// TestImagesAreRoutedByReference: a chat with an image has no tokens of ours, and goes
// where the same image and text went before.
func TestImagesAreRoutedByReference(t *testing.T) {
	rg := newRig(t, rigConfig{engines: 4, sim: simserver.Config{BlockSize: 4}, router: router.Config{Mode: router.KV}})
	ask := func(messages string) string {
		t.Helper()
		resp, body := rg.post(t, "/v1/chat/completions", `{"model":"stator-sim","max_tokens":1,"messages":[`+messages+`],"nvext":{"extra_fields":["worker_id"]}}`)
		if resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		_, worker, _ := strings.Cut(body, `"worker_id":`)
		return worker
	}
	long := `{"role":"system","content":"` + strings.Repeat("be brief. ", 40) + `"},`
	data := "data:image/png;base64," + strings.Repeat("QUJD", 50_000)
	first := ask(long + image(data))
	for range 3 {
		if again := ask(long + image(data) + `,{"role":"assistant","content":"a cat"},{"role":"user","content":"sure?"}`); again != first {
			t.Errorf("the same image went to %s, first to %s", again, first)
		}
	}
	_, text := rg.get(t, "/metrics")
	for _, want := range []string{
		`stator_tokenizations_skipped_total{model="stator-sim",reason="media"} 4`,
		`stator_router_text_routed_total{model="stator-sim"}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if n := rg.body.Load(); n != 0 {
		t.Errorf("%d bytes still held", n)
	}
}

func TestAppendMessages(t *testing.T) {
	outline := func(messages string, size int) string {
		return string(appendMessages(make([]byte, 0, size), openai.Value("["+messages+"]")))
	}
	const size = 1 << 10
	cat, dog := image("http://a/cat.png"), image("http://a/dog.png")
	if outline(cat, size) == outline(dog, size) {
		t.Error("images are not told apart by their URLs")
	}
	named := func(url string) string {
		return strings.Replace(image(url), `"type":"image_url"`, `"type":"image_url","uuid":"x"`, 1)
	}
	if outline(named("a"), size) != outline(named("b"), size) {
		t.Error("what has the same name is not the same")
	}
	if detailed := strings.Replace(cat, `"}}`, `","detail":"low"}}`, 1); outline(cat, size) == outline(detailed, size) {
		t.Error("an image with less detail is the same prompt")
	}
	huge := image("data:," + strings.Repeat("x", 1<<20))
	got := outline(huge+","+huge, size)
	if len(got) > 300 || strings.Count(got, "what is this?") != 2 || strings.Contains(got, "xxx") {
		t.Errorf("%d bytes stand for two images with text: %.300q", len(got), got)
	}
	whole := outline(cat+","+dog, size)
	for n := range whole {
		if cut := outline(cat+","+dog, n); cut != whole[:n] {
			t.Fatalf("%d bytes: %q", n, cut)
		}
	}
	if plain := `{"role":"user","content":"hi"}`; outline(plain, size) != "["+plain+"]" {
		t.Errorf("text became %q", outline(plain, size))
	}
}

// TestGuessWithImages: the bytes of an image are not tokens of its prompt.
func TestGuessWithImages(t *testing.T) {
	for _, tc := range []struct {
		name, messages string
		least, most    int
	}{
		{"text", `[{"role":"user","content":"` + strings.Repeat("x", 400) + `"}]`, 100, 120},
		{"an image", "[" + image("data:,"+strings.Repeat("x", 1<<20)) + "]", mediaTokens, mediaTokens + 40},
		{"two images", "[" + image("a") + "," + image("b") + "]", 2 * mediaTokens, 2*mediaTokens + 60},
	} {
		c := &call{media: -1, req: &openai.Request{Messages: openai.Value(tc.messages)}}
		if n, guess := c.promptLength(); !guess || n < tc.least || n > tc.most {
			t.Errorf("%s: %d tokens, a guess: %v; want %d to %d", tc.name, n, guess, tc.least, tc.most)
		}
	}
}
