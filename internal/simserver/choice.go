package simserver

import (
	"math"
	"slices"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize"
)

// choice is one answer on its way: it writes tokens, makes text of them and knows
// when to stop.
type choice struct {
	req    *request
	prompt *prompt
	index  int
	prose  prose
	join   joiner
	stop   stopFilter
	limit  int // tokens it may have
	tokens int // tokens it has
	offset int // characters begun
	begun  int // bytes at the end of an echoed prompt that the first text has

	// What the last step gave.
	id         uint32
	out        []byte // text to send, possibly none
	finish     string // finish reason, empty while it goes on
	stopReason string
	logprob    openai.TokenLogprob

	piece []byte
	top   []openai.Logprob
	quiet bool // nobody reads what it writes
}

// appendChoices appends the choices of req, in the order of their index, to dst,
// which is empty; its memory is used again.
func appendChoices(dst []choice, cfg *Config, req *request) []choice {
	n := len(req.prompts) * req.n
	choices := slices.Grow(dst, n)[:n]
	for i := range choices {
		c := &choices[i]
		*c = choice{req: req, prompt: &req.prompts[i/req.n], index: i, out: c.out[:0], piece: c.piece[:0]}
		c.prose.prime(choiceSeed(cfg.Seed, req, i%req.n), c.prompt.ids)
		c.join.prime(c.prompt.ids)
		if req.echo { // the prompt's stray bytes are part of the answer
			c.begun, c.join.prompt = c.join.n, 0
		}
		c.stop = stopFilter{strings: req.stops, include: req.includeStop, at: make([]int, len(req.stops))}
		c.limit = cfg.room() - len(c.prompt.ids)
		if req.maxTokens > 0 {
			c.limit = min(c.limit, req.maxTokens)
		}
	}
	return choices
}

// rehearse finds out what the choice, which has written nothing yet, will write:
// the number of tokens, how they end, and the blocks that they fill. The choice is
// as before then.
func (c *choice) rehearse(b *blockWriter) (tokens int, how ending) {
	before := *c
	c.quiet = true
	for !c.done() {
		c.step()
		b.push(c.id)
	}
	tokens, how = c.tokens, endingOf(c.finish)
	*c = before
	clear(c.stop.at)
	return tokens, how
}

// choiceSeed mixes what makes choice k of a request differ. The engine itself is
// no part of it: two engines with the same seed write the same text.
func choiceSeed(seed uint64, req *request, k int) uint64 {
	if req.hasSeed {
		seed = mix(seed) ^ mix(uint64(req.seed)+1)
	}
	return seed + uint64(k)*0xd1_34_25_43_de_82_ef_95
}

// done reports whether the choice has finished.
func (c *choice) done() bool { return c.finish != "" }

// step writes one token. It must not be called when the choice is done.
func (c *choice) step() {
	c.out = c.out[:0]
	c.tokens++
	checked := c.tokens >= c.req.minTokens
	before := c.prose.hash
	c.id = c.prose.next(checked && !c.req.ignoreEOS)
	if c.req.logprobs && !c.quiet {
		c.logprob = logprob(c.prose.seed^before, c.id, c.req.top, c.top[:0])
		c.logprob.Offset = c.offset
		c.top = c.logprob.Top
	}
	if c.id == endToken {
		c.end("stop")
		return
	}
	c.prose.push(c.id)
	if startsCharacter(c.id) {
		c.offset++
	}
	c.piece = c.join.write(c.piece[:0], byte(c.id))
	if !checked {
		c.out = append(c.out, c.piece...)
	} else {
		var match int
		if c.out, match = c.stop.write(c.out, c.piece); match >= 0 {
			c.finish, c.stopReason = "stop", c.req.stops[match].text
			return
		}
	}
	if c.tokens == c.limit {
		c.end("length")
	}
}

// run appends tokens of the choice to dst that are text and nothing else, all but
// the last that it may have. Nothing must look at its tokens one by one.
func (c *choice) run(dst []byte) []byte {
	if c.join.n > 0 {
		return dst
	}
	start := len(dst)
	dst = c.prose.run(dst, c.limit-1-c.tokens)
	c.tokens += len(dst) - start
	return dst
}

// end finishes the choice without a stop string and lets go of what was held.
func (c *choice) end(reason string) {
	c.finish = reason
	c.out = c.stop.flush(c.out)
	c.out = c.join.flush(c.out)
}

// startsCharacter reports whether a token begins a character of the text.
func startsCharacter(id uint32) bool { return id < 256 && utf8.RuneStart(byte(id)) }

// promptLogprobs returns the log probabilities of the prompt's own tokens, which
// come with an echo, and the number of its characters. The first token has
// nothing before it and hence no probability.
func (c *choice) promptLogprobs() (out []openai.TokenLogprob, chars int) {
	out = make([]openai.TokenLogprob, 0, len(c.prompt.ids)+1)
	var h uint64 = firstHash
	for i, id := range c.prompt.ids {
		l := logprob(c.prose.seed^h, id, c.req.top, nil)
		if i == 0 {
			l.Logprob.Logprob, l.Top = math.NaN(), nil
		}
		l.Offset = chars
		if id >= 256 {
			chars += len(tokenTexts[id])
		} else if startsCharacter(id) {
			chars++
		}
		out = append(out, l)
		h = fold(h, id)
	}
	return out, chars
}

// tokenTexts are the bytes of each token.
var tokenTexts = func() (texts [tokenize.BytesVocab][]byte) {
	for id := range texts {
		texts[id], _ = tokenize.Bytes{}.Decode(nil, []uint32{uint32(id)})
	}
	return texts
}()

const logprobSalt = 0x6a_09_e6_67_f3_bc_c9_09

// logprob makes up the probability of a token: the one chosen is always the most
// likely, and the others share the rest by halves. The top n are appended to top.
func logprob(state uint64, id uint32, n int, top []openai.Logprob) openai.TokenLogprob {
	x := mix(state ^ logprobSalt)
	p := 0.55 + 0.4*float64(x>>11)/(1<<53)
	out := openai.TokenLogprob{Logprob: openai.Logprob{Token: tokenTexts[id], Logprob: logOf(p)}}
	rest := 1 - p
	// 95 printable characters, visited in steps that reach each of them once.
	for at := x % 95; len(top) < n; at = (at + 7) % 95 {
		if len(top) == 0 {
			top = append(top, out.Logprob)
		} else if other := uint32(' ' + at); other != id {
			rest /= 2
			top = append(top, openai.Logprob{Token: tokenTexts[other], Logprob: logOf(rest)})
		}
	}
	out.Top = top
	return out
}

// logOf returns the logarithm of p with six decimals.
func logOf(p float64) float64 { return math.Round(math.Log(p)*1e6) / 1e6 }
