package split

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// corpora returns texts of a megabyte: prose and code of this repository, and
// sentences in random order for what it does not have.
func corpora(tb testing.TB) map[string][]byte {
	root := filepath.Join("..", "..", "..")
	read := func(patterns ...string) []byte {
		var b []byte
		for _, p := range patterns {
			names, err := filepath.Glob(filepath.Join(root, p))
			if err != nil || len(names) == 0 {
				tb.Fatalf("no file matches %s: %v", p, err)
			}
			for _, name := range names {
				text, err := os.ReadFile(name)
				if err != nil {
					tb.Fatal(err)
				}
				b = append(b, text...)
			}
		}
		return b
	}
	shuffle := func(text string) []byte {
		rng := rand.New(rand.NewPCG(1, 2))
		parts := strings.Fields(text)
		var b []byte
		for len(b) < 1<<16 {
			b = append(b, parts[rng.IntN(len(parts))]...)
			b = append(b, ' ')
		}
		return b
	}
	out := map[string][]byte{
		"english": read("*.md"),
		"code":    read("*.go", "internal/openai/*.go"),
		"chinese": shuffle("请求到达时，路由器决定由哪一台服务器来处理。 它知道哪些服务器已经缓存了提示的前缀。 词元必须与引擎的完全相同， 否则缓存就无法命中，答案也会变慢。 每个字都可能是一个词元，也可能不是。"),
		"russian": shuffle("Когда приходит запрос, маршрутизатор решает, какой из серверов ответит быстрее. Он знает, что хранится в каждом кэше, и сколько работы ещё впереди. Слова разбиваются на части так же, как это делает модель."),
	}
	for name, text := range out {
		out[name] = bytes.Repeat(text, 1<<20/len(text)+1)
	}
	return out
}

func BenchmarkNext(b *testing.B) {
	texts := corpora(b)
	for _, f := range []struct {
		name string
		next func([]byte, int) int
	}{
		{"llama3", nextLlama3},
		{"qwen2", nextQwen2},
		{"qwen3.5", nextQwen35},
		{"o200k", nextO200k},
		{"tekken", nextTekken},
		{"kimi", nextKimi},
		{"deepseek", nextDeepSeek},
		{"gpt2", nextGPT2},
		{"command-r", nextGPT2Digits},
	} {
		for _, name := range []string{"english", "code", "chinese", "russian"} {
			text := texts[name]
			b.Run("pattern="+f.name+"/text="+name, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				pieces := 0
				for b.Loop() {
					for i := 0; i < len(text); {
						i = f.next(text, i)
						pieces++
					}
				}
				b.ReportMetric(float64(len(text)*b.N)/float64(pieces), "bytes/piece")
			})
		}
	}
}

// BenchmarkAppend has the general way beside the scanner of the same pattern.
func BenchmarkAppend(b *testing.B) {
	text := corpora(b)["english"][:1<<16]
	v := knownJSON()["llama3"]
	for name, p := range map[string]*Plan{"scanner": fromJSON(b, v), "regex": slow(b, v)} {
		b.Run("engine="+name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var dst Pieces
			for b.Loop() {
				dst.Reset()
				p.Append(&dst, text, true)
			}
		})
	}
}
