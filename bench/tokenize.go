package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/hf"
	"github.com/stator-ai/stator/internal/tokenize/local"
	"github.com/stator-ai/stator/internal/tokenize/prefix"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// The targets of tokenizing.
const (
	wantWarm     = 5   // times as fast as Hugging Face's library on text of words seen before
	wantCold     = 2   // the same on new words, and on text made to be slow
	wantTiktoken = 1   // times as fast as tiktoken on text of words seen before
	wantPrefix   = 10  // times as fast as encoding every turn of a chat from its beginning
	loadLimit    = 0.5 // of the time of encoding/json

	warmPasses = 4
)

// tokenizerModels are the models that are measured: whose tokenizer, and whether
// tiktoken can do the same.
var tokenizerModels = []struct {
	name, family string
	tiktoken     bool
}{
	{"Llama-3", "llama3_1", true},
	{"Qwen-3", "qwen3", true},
	{"DeepSeek-V3", "deepseek_v3", true},
	{"Gemma-3", "gemma3", false},
}

// measureTokenize compares our tokenizers with Hugging Face's and with tiktoken, all
// on one thread; chats through the prefix cache with encoding them anew; and loading
// a file with decoding it by encoding/json. Time is the processor's. Before a corpus
// is measured, its ids are compared with Hugging Face's: all of them have to be
// equal.
//
// Warm is the same text again, so that every piece is known. For text of words that
// is what a server sees after a while. For CJK it is more than that: a piece is what
// stands between two punctuation marks, and new text has new ones; there the cold
// figure says more.
func measureTokenize(ctx context.Context, o options, r *report) error {
	p, err := readPassages(ctx)
	if err != nil {
		return err
	}
	if err := measurePrefix(o, r, p); err != nil {
		return err
	}
	l, err := startLibraries(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		if err := measureBuiltIn(r, p); err != nil {
			return err
		}
		return &missingError{fmt.Errorf("not compared with Hugging Face's tokenizers and tiktoken, no tokenizer file loaded: %w", err)}
	}
	defer l.stop()
	if err := measureLoading(o, r, l.path("qwen3")); err != nil {
		return err
	}
	for _, m := range tokenizerModels {
		t := &tokenizerRun{o: o, r: r, l: l, model: m.name, tiktoken: m.tiktoken}
		if err := t.measure(ctx, m.family, p); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	r.note("tokenize: one thread; %s %s, %s %s; warm: the same text again, every piece known; cold: the first pass of a tokenizer just loaded",
		libraryHF, l.versions[libraryHF], libraryTiktoken, l.versions[libraryTiktoken])
	return nil
}

// tokenizerRun measures one model.
type tokenizerRun struct {
	o        options
	r        *report
	l        *libraries
	model    string
	tiktoken bool
	file     []byte
	warm     *hf.Tokenizer
}

func (t *tokenizerRun) measure(ctx context.Context, family string, p *passages) error {
	t.o.progress("tokenize: %s", t.model)
	path := t.l.path(family)
	var err error
	if t.file, err = os.ReadFile(path); err != nil {
		return err
	}
	before := heap()
	if t.warm, err = hf.Parse(t.file); err != nil {
		return err
	}
	t.r.note("tokenize: %s takes %.1f MB of heap, its file has %.1f MB", t.model, float64(heap()-before)/1e6, float64(len(t.file))/1e6)
	if err := t.l.load(family, t.tiktoken); err != nil {
		return err
	}
	model, err := local.Open(ctx, filepath.Dir(path), nil, local.Options{CacheBytes: -1})
	if err != nil {
		return err
	}
	chat, err := p.chat(model)
	if err != nil {
		return err
	}
	for _, c := range append(p.natural(), chat) {
		if err := t.compare(ctx, c, true /* natural */); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for _, c := range hostile() {
		if err := t.compare(ctx, c, false /* natural */); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// compare measures one corpus: several rounds in which everyone has a turn, in an
// order that turns around.
func (t *tokenizerRun) compare(ctx context.Context, c *corpus, natural bool) error {
	if err := t.l.texts(t.o.dir, c); err != nil {
		return err
	}
	if err := t.check(c, natural); err != nil {
		return err
	}
	var warm, cold, theirs, tiktoken []float64 // seconds per pass
	turns := []func() error{
		func() error { return t.turnCold(&cold, c) },
		func() error { return t.turnLibrary(&theirs, libraryHF) },
	}
	if natural {
		turns = append(turns, func() error { return t.turnWarm(&warm, c) })
		if t.tiktoken {
			turns = append(turns, func() error { return t.turnLibrary(&tiktoken, libraryTiktoken) })
		}
	}
	for range t.o.rounds {
		for _, turn := range turns {
			if err := errors.Join(ctx.Err(), turn()); err != nil {
				return err
			}
		}
		slices.Reverse(turns)
	}
	what := t.model + ", " + c.name
	if natural {
		t.r.faster(what+", warm, over Hugging Face", c.size(), theirs, warm, wantWarm)
		if t.tiktoken {
			t.r.faster(what+", warm, over tiktoken", c.size(), tiktoken, warm, wantTiktoken)
		}
	}
	t.r.faster(what+", cold, over Hugging Face", c.size(), theirs, cold, wantCold)
	return nil
}

// check compares our ids with those of Hugging Face's library, and says where those
// of tiktoken differ. It is also the first pass.
func (t *tokenizerRun) check(c *corpus, natural bool) error {
	sum, ids, err := sumIDs(t.warm, c)
	if err != nil {
		return err
	}
	want, err := t.l.encode(libraryHF, true /* sum */)
	if err != nil {
		return err
	}
	if sum != want.sum {
		return fmt.Errorf("our %d ids differ from the %d of Hugging Face's library", ids, want.ids)
	}
	if !t.tiktoken || !natural {
		return nil
	}
	other, err := t.l.encode(libraryTiktoken, true /* sum */)
	if err == nil && other.sum != want.sum {
		t.r.note("tokenize: %s, %s: tiktoken's %d ids are not quite the %d of the others", t.model, c.name, other.ids, want.ids)
	}
	return err
}

// sumIDs encodes a corpus and returns the hash and the number of its ids.
func sumIDs(tok *hf.Tokenizer, c *corpus) (sum string, ids int, err error) {
	h := sha256.New()
	var dst []uint32
	var raw []byte
	for _, chunk := range c.chunks {
		if dst, err = tok.Encode(dst[:0], chunk, true /* special */); err != nil {
			return "", 0, err
		}
		raw = binary.LittleEndian.AppendUint32(raw[:0], uint32(len(dst)))
		for _, id := range dst {
			raw = binary.LittleEndian.AppendUint32(raw, id)
		}
		h.Write(raw)
		ids += len(dst)
	}
	return hex.EncodeToString(h.Sum(nil)), ids, nil
}

func (t *tokenizerRun) turnLibrary(to *[]float64, library string) error {
	e, err := t.l.encode(library, false /* sum */)
	*to = append(*to, e.cpu.Seconds())
	return err
}

func (t *tokenizerRun) turnWarm(to *[]float64, c *corpus) error {
	took, err := encodeCorpus(t.warm, c, warmPasses)
	*to = append(*to, took/warmPasses)
	return err
}

func (t *tokenizerRun) turnCold(to *[]float64, c *corpus) error {
	tok, err := hf.Parse(t.file)
	if err != nil {
		return err
	}
	took, err := encodeCorpus(tok, c, 1)
	*to = append(*to, took)
	return err
}

// encodeCorpus returns the processor time in seconds that encoding a corpus takes.
func encodeCorpus(tok *hf.Tokenizer, c *corpus, passes int) (float64, error) {
	dst := make([]uint32, 0, 2*chunkSize)
	return spent(func() (err error) {
		for range passes {
			for _, chunk := range c.chunks {
				if dst, err = tok.Encode(dst[:0], chunk, true /* special */); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// spent returns the processor time of this process in seconds that f takes. Garbage
// from before is not f's.
func spent(f func() error) (float64, error) {
	runtime.GC()
	before, err := cpuTime(os.Getpid())
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := cpuTime(os.Getpid())
	return (after - before).Seconds(), err
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// measureBuiltIn shows how fast the one tokenizer is that needs no files.
func measureBuiltIn(r *report, p *passages) error {
	chat, err := p.chat(qwen3.Model())
	if err != nil {
		return err
	}
	var speeds []string
	for _, c := range append(p.natural(), chat) {
		if _, err := encodeCorpus(qwen3.Tokenizer(), c, 1); err != nil {
			return err
		}
		took, err := encodeCorpus(qwen3.Tokenizer(), c, warmPasses)
		if err != nil {
			return err
		}
		speeds = append(speeds, fmt.Sprintf("%s %s", c.name, speed(c.size(), took/warmPasses)))
	}
	r.note("tokenize: Qwen-3, warm: %s", strings.Join(speeds, ", "))
	return nil
}

// The chat that goes through the prefix cache: what an agent is told and given to
// begin with, and turns of a question and an answer each.
const (
	chatTurns   = 50
	chatOpening = 8_000
	chatTurn    = 2_000
	chatRepeats = 5
)

// measurePrefix compares a chat through a prefix cache that is empty at first, turn
// by turn, with encoding each turn from the beginning.
func measurePrefix(o options, r *report, p *passages) error {
	o.progress("tokenize: a chat of %d turns", chatTurns)
	turns, err := p.turns(qwen3.Model())
	if err != nil {
		return err
	}
	tok := qwen3.Tokenizer()
	for _, text := range turns { // the words of the chat are known to both
		if _, err := tok.Encode(nil, text, true /* special */); err != nil {
			return err
		}
	}
	var whole, cached []float64
	for range o.rounds {
		var ids []uint32 // the caller's own, as the cache's are
		took, err := spent(func() (err error) {
			for range chatRepeats {
				for _, text := range turns {
					if ids, err = tok.Encode(nil, text, true /* special */); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		whole = append(whole, took/chatRepeats)
		var last tokenize.Result
		took, err = spent(func() (err error) {
			for range chatRepeats {
				cache := prefix.New(tok, local.DefaultCacheBytes)
				for _, text := range turns {
					if last, err = cache.Encode(text, tokenize.Hashing{}); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		cached = append(cached, took/chatRepeats)
		if !slices.Equal(last.IDs, ids) {
			return errors.New("the ids of a chat through the prefix cache are not those of the whole")
		}
	}
	what := fmt.Sprintf("chat of %d turns and %d KB through the prefix cache", chatTurns, len(turns[chatTurns-1])/1000)
	r.speedup(what, millis(median(whole)), millis(median(cached)), whole, cached, wantPrefix)
	return nil
}

// turns renders the turns of a chat.
func (p *passages) turns(m tokenize.Renderer) ([][]byte, error) {
	t := newTalk(p, "turns")
	messages := []message{{"system", t.content(chatOpening)}}
	out := make([][]byte, chatTurns)
	for i := range out {
		messages = append(messages, message{"user", t.content(chatTurn / 6)})
		text, err := render(m, messages)
		if err != nil {
			return nil, err
		}
		out[i] = text
		messages = append(messages, message{"assistant", t.content(chatTurn * 5 / 6)})
	}
	return out, nil
}

// measureLoading compares loading a tokenizer.json with decoding it into structs.
func measureLoading(o options, r *report, path string) error {
	o.progress("tokenize: loading %s", path)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var decoded, loaded, ratios []float64
	for range o.rounds {
		took, err := spent(func() error {
			var f struct {
				AddedTokens []hf.AddedToken `json:"added_tokens"`
				Model       struct {
					Vocab  map[string]uint32 `json:"vocab"`
					Merges [][2]string       `json:"merges"`
				} `json:"model"`
			}
			return json.Unmarshal(data, &f)
		})
		if err != nil {
			return err
		}
		decoded = append(decoded, took)
		if took, err = spent(func() error { _, err := hf.Parse(data); return err }); err != nil {
			return err
		}
		loaded = append(loaded, took)
		ratios = append(ratios, took/decoded[len(decoded)-1])
	}
	r.ratio(fmt.Sprintf("loading a tokenizer.json of %.1f MB", float64(len(data))/1e6),
		millis(median(decoded)), millis(median(loaded)), ratios, loadLimit)
	return nil
}

// faster adds a row that is decided by how many times as fast we encode a corpus of
// so many bytes, given the seconds of each round.
func (r *report) faster(what string, size int, baseline, stator []float64, want float64) {
	r.speedup(what, speed(size, median(baseline)), speed(size, median(stator)), baseline, stator, want)
}

// speedup adds a row that is decided by the median over the rounds of the baseline's
// time over stator's.
func (r *report) speedup(what, baselineFigure, statorFigure string, baseline, stator []float64, want float64) {
	ratios := make([]float64, len(stator))
	for i := range ratios {
		ratios[i] = baseline[i] / stator[i]
	}
	r.rows = append(r.rows, row{
		what:     what,
		baseline: baselineFigure,
		stator:   statorFigure,
		ratio:    fmt.Sprintf("%.1f", median(ratios)),
		spread:   fmt.Sprintf("%.1f–%.1f", slices.Min(ratios), slices.Max(ratios)),
		target:   fmt.Sprintf("≥ %g×", want),
		ok:       median(ratios) >= want,
	})
}

func speed(size int, seconds float64) string {
	return fmt.Sprintf("%.1f MB/s", float64(size)/1e6/seconds)
}

func millis(seconds float64) string { return fmt.Sprintf("%.1f ms", 1e3*seconds) }
