package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
)

// How long prompts are, in tokens: a few blocks where blocks have the usual sizes, and
// more than one block in any case.
const (
	fewTokens  = 64
	manyTokens = 200
	// usualBlock is the size of blocks that are not known.
	usualBlock = 32
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 1 << 20
)

// probe is a prompt that no engine has seen, sent to one rank.
type probe struct {
	rank   uint32
	text   string
	ids    []uint32 // nil if nobody knows them
	owner  string   // whose they are: the engine, or its tokenizer here
	answer *answer
	err    error

	want, found int      // blocks: of the prompt, and told of by events
	elsewhere   []uint32 // other ranks that told of them
}

// answer is what came of a request.
type answer struct {
	took  time.Duration
	usage *openai.Usage // nil if there is none
	said  time.Time     // the time that the server gives
	at    time.Time     // when that was
}

func (e *exam) reportsCached() bool {
	return e.again != nil && e.again.usage != nil && e.again.usage.HasCached
}

// ask sends the prompts that the rest is judged by.
func (e *exam) ask(ctx context.Context) {
	for rank := range e.probedRanks() {
		p := e.probeRank(ctx, uint32(rank))
		e.probes = append(e.probes, p)
		if p.err != nil {
			return
		}
	}
	first := e.probes[0]
	if a, err := e.send(ctx, first.rank, first.text, ""); err == nil {
		e.again = a
	}
	if e.salts() {
		e.salt = e.name()
		if e.salted, e.saltErr = e.send(ctx, first.rank, first.text, e.salt); e.saltErr == nil {
			e.awaitSalted(ctx, first)
		}
	}
	e.sendChat(ctx)
}

// probedRanks returns how many ranks get a prompt.
func (e *exam) probedRanks() int {
	if e.info.Kind == engine.TRTLLM || e.info.Kind == engine.LlamaCpp {
		return 1 // the server chooses
	}
	return min(e.ranks, 16)
}

// salts reports whether completions can have a cache salt.
func (e *exam) salts() bool { return e.info.Kind != engine.LlamaCpp && e.info.Kind != engine.TRTLLM }

// probeRank sends a new prompt to a rank and waits for the events about it, a second
// time if there are none: a publisher may begin late to send to a new subscriber.
func (e *exam) probeRank(ctx context.Context, rank uint32) *probe {
	p := &probe{rank: rank}
	for range 2 {
		p.text, p.ids, p.owner = e.prompt(ctx)
		if p.answer, p.err = e.send(ctx, rank, p.text, ""); p.err != nil {
			return p
		}
		e.clockBy(p.answer)
		if e.ear == nil || e.await(ctx, p) {
			return p
		}
	}
	return p
}

// prompt returns one that is new from its first words on, and its tokens, if they are
// known.
func (e *exam) prompt(ctx context.Context) (text string, ids []uint32, owner string) {
	size := e.blockSize()
	if size == 0 {
		size = usualBlock
	}
	n := max(min(max(3*size+size/2, fewTokens), manyTokens), size+8)
	words := make([]string, n)
	for i := range words {
		words[i] = vocabulary[e.rng.IntN(len(vocabulary))]
	}
	for range 4 { // a word has one token or several
		text = strings.Join(words, " ")
		ids, owner = e.encode(ctx, text)
		if len(ids) <= n+n/4 {
			break
		}
		words = words[:max(len(words)*n/len(ids), 1)]
	}
	return text, ids, owner
}

// encode returns the tokens of a text as the engine has them, or else as they are
// made here.
func (e *exam) encode(ctx context.Context, text string) (ids []uint32, owner string) {
	if t, ok := e.engine.(engine.Tokenizer); ok && !e.silent {
		out, err := t.Tokenize(ctx, &engine.TokenizeRequest{
			Model: e.model.ID, Body: &openai.Object{}, Prompt: openai.AppendString(nil, text),
		})
		if err == nil && len(out.IDs) > 0 {
			return out.IDs, "engine"
		}
		e.silent = true
	}
	if e.tokens.Local == nil {
		return nil, ""
	}
	out, err := e.tokens.Local.Complete([]byte(text), false, noHashes)
	if err != nil {
		return nil, ""
	}
	return out.IDs, "local"
}

// send has the engine compute one token after a text.
func (e *exam) send(ctx context.Context, rank uint32, text, salt string) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout/3) // so that there is time for the rest
	defer cancel()
	start := time.Now()
	body := fmt.Sprintf(`{"model":%s,"prompt":%s,"max_tokens":1,"temperature":0}`, quote(e.model.ID), quote(text))
	resp, err := e.request(ctx, rank, openai.Completions.Path(), body, engine.Wishes{Salt: salt})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	doc, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	var info openai.ChunkInfo
	if err := openai.ParseChunk(doc, &info); err != nil {
		return nil, fmt.Errorf("the answer of %s: %w", openai.Completions.Path(), err)
	}
	a := newAnswer(resp)
	a.usage, a.took = info.Usage, time.Since(start)
	return a, nil
}

func newAnswer(resp *engine.Response) *answer {
	a := &answer{at: time.Now()}
	if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		a.said = t
	}
	return a
}

// request opens a request. An answer with another status than 200 is an error.
func (e *exam) request(ctx context.Context, rank uint32, path, body string, w engine.Wishes) (*engine.Response, error) {
	o, err := openai.ParseObject([]byte(body))
	if err != nil {
		return nil, err
	}
	if w.ID == "" {
		w.ID = e.name()
	}
	w.Model = e.model.ID
	resp, err := e.engine.Open(ctx, engine.Target{Worker: worker, Rank: rank}, &engine.Request{
		Path: path, Body: &o, Ranked: e.ranks > 1, Wishes: w,
	})
	if err != nil {
		return nil, err
	}
	if resp.Status != http.StatusOK {
		defer resp.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // as much as there is
		return nil, fmt.Errorf("%s answered status %d: %s", path, resp.Status, strings.ToValidUTF8(string(said), "\uFFFD"))
	}
	return resp, nil
}

// sendChat has the engine stream one token of a chat.
func (e *exam) sendChat(ctx context.Context) {
	text, _, _ := e.prompt(ctx)
	e.chatSent = fmt.Appendf(nil, `{"model":%s,"messages":[{"role":"user","content":%s}],"max_tokens":1,"temperature":0,"stream":true}`,
		quote(e.model.ID), quote(text))
	heard := e.batches()
	stream, cancel := context.WithTimeout(ctx, e.cfg.Timeout/3)
	defer cancel()
	resp, err := e.request(stream, 0, openai.Chat.Path(), string(e.chatSent), engine.Wishes{Usage: true})
	if err != nil {
		e.chatErr = err
		return
	}
	defer resp.Body.Close()
	a := newAnswer(resp)
	a.usage, e.chatErr = readUsage(resp.Body)
	e.chat = a
	if e.ear != nil && heard > 0 { // so that a gap before it shows
		wait(ctx, e.cfg.patience/3, func() bool { return e.batches() > heard })
	}
}

// readUsage reads a stream to its end and returns its usage, nil if it has none.
func readUsage(r io.Reader) (usage *openai.Usage, err error) {
	s := openai.NewScanner(nil, maxAnswer)
	for err == nil {
		err = s.Fill(r)
		for ev, ok := s.Next(); ok; ev, ok = s.Next() {
			var info openai.ChunkInfo
			if ev.Data == nil || ev.IsDone() {
				continue
			}
			if err := openai.ParseChunk(ev.Data, &info); err != nil {
				return usage, fmt.Errorf("a chunk of the stream: %w", err)
			}
			if info.Error != nil {
				return usage, fmt.Errorf("the stream broke off: %.200s", info.Error)
			}
			if info.Usage != nil {
				usage = info.Usage
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return usage, err
	}
	return usage, nil
}

// name returns an id for a request.
func (e *exam) name() string { return fmt.Sprintf("stator-doctor-%016x", e.rng.Uint64()) }

func quote(s string) string { return string(openai.AppendString(nil, s)) }

// vocabulary are words that tokenizers have as one token, with the space before them.
var vocabulary = strings.Fields(`
	able air animal apple arm army art ball bank base bed bell bird board boat body bone book bottle box boy
	branch bread bridge brown burn business butter cake car card case chain chance cheese church city class clean
	clock cloud coal coat cold color common cook copper cord cotton cover cup curtain danger dark daughter deep
	desk dinner direction distance door drink drop dust early earth edge education effect end engine event exchange`)
