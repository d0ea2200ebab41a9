package simserver

import (
	"math"
	"slices"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/detok"
)

// choice is one answer on its way: it writes tokens, makes text of them and knows
// when to stop.
type choice struct {
	req    *request
	vocab  *vocabulary
	prompt *prompt
	index  int
	prose  prose
	text   *detok.Stream
	stop   tokenize.StopFilter
	limit  int    // tokens it may have
	tokens int    // tokens it has
	offset int    // characters begun
	echo   []byte // the text of the prompt, if it is asked for

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
// which is empty; its memory is used again. They are to be opened.
func appendChoices(dst []choice, s *Server, req *request) []choice {
	n := len(req.prompts) * req.n
	choices := slices.Grow(dst, n)[:n]
	for i := range choices {
		c := &choices[i]
		text := c.text
		if text == nil || c.vocab != s.vocab {
			text = s.vocab.tokens.NewStream(false /* skipSpecial */)
		}
		*c = choice{
			req: req, vocab: s.vocab, prompt: &req.prompts[i/req.n], index: i, text: text,
			out: c.out[:0], piece: c.piece[:0],
		}
		c.prose.prime(s.vocab, choiceSeed(s.cfg.Seed, req, i%req.n), c.prompt.ids)
		c.limit = s.cfg.room() - len(c.prompt.ids)
		if req.maxTokens > 0 {
			c.limit = min(c.limit, req.maxTokens)
		}
	}
	return choices
}

// open makes the choice ready to give text: that of its tokens goes on where the
// prompt's ends. The first one may complete a character that the prompt began; the
// answer then has all of it, since nobody has printed it yet.
func (c *choice) open() {
	c.text.Reset()
	c.stop = tokenize.StopFilter{}
	if c.req.stops != nil {
		c.stop = c.req.stops.Filter()
	}
	if !c.req.echo {
		c.text.Prime(c.prompt.ids)
		return
	}
	c.echo = c.echo[:0]
	for _, id := range c.prompt.ids {
		c.echo = c.text.Push(c.echo, id)
	}
}

// rehearse finds out what the choice, which has written nothing yet, will write:
// the number of tokens, how they end, and the blocks that they fill. The choice is
// as before then, and not open.
func (c *choice) rehearse(b *blockWriter) (tokens int, how ending) {
	before := *c
	c.quiet = true
	if c.req.stops != nil { // their text decides
		c.open()
	}
	for !c.done() {
		c.step()
		b.push(c.id)
	}
	tokens, how = c.tokens, endingOf(c.finish)
	*c = before
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
		c.logprob = c.vocab.logprob(c.prose.seed^before, c.id, c.req.top, c.top[:0])
		c.logprob.Offset = c.offset
		c.top = c.logprob.Top
		c.offset += characters(c.logprob.Token)
	}
	over := c.id == c.vocab.end
	if !over {
		c.prose.push(c.id)
	}
	if !over || c.req.showEnd {
		if match := c.write(checked); match >= 0 {
			c.finish, c.stopReason = "stop", c.req.stopStrings[match]
			return
		}
	}
	if over {
		c.end("stop")
	} else if c.tokens == c.limit {
		c.end("length")
	}
}

// write makes text of the token. It returns the index of the stop string that is
// complete, -1 for none.
func (c *choice) write(checked bool) int {
	if c.quiet && c.req.stops == nil {
		return -1
	}
	c.piece = c.text.Push(c.piece[:0], c.id)
	if !checked {
		c.out = append(c.out, c.piece...)
		return -1
	}
	var match int
	c.out, match = c.stop.Write(c.out, c.piece)
	return match
}

// run appends tokens of the choice to dst that are text and nothing else, all but
// the last that it may have. Nothing must look at its tokens one by one.
func (c *choice) run(dst []byte) []byte {
	if c.tokens == 0 {
		return dst // the prompt may have left a character unfinished
	}
	dst, n := c.prose.run(dst, c.limit-1-c.tokens)
	c.tokens += n
	return dst
}

// end finishes the choice without a stop string and lets go of what was held.
func (c *choice) end(reason string) {
	c.finish = reason
	if !c.quiet {
		c.out = c.stop.Flush(c.out)
		c.out = c.text.Flush(c.out)
	}
}

// promptLogprobs returns the log probabilities of the prompt's own tokens, which
// come with an echo, and the number of its characters. The first token has
// nothing before it and hence no probability.
func (c *choice) promptLogprobs() (out []openai.TokenLogprob, chars int) {
	out = make([]openai.TokenLogprob, 0, len(c.prompt.ids)+1)
	var h uint64 = firstHash
	for i, id := range c.prompt.ids {
		l := c.vocab.logprob(c.prose.seed^h, id, c.req.top, nil)
		if i == 0 {
			l.Logprob.Logprob, l.Top = math.NaN(), nil
		}
		l.Offset = chars
		chars += characters(l.Token)
		out = append(out, l)
		h = fold(h, id)
	}
	return out, chars
}

const (
	logprobSalt = 0x6a_09_e6_67_f3_bc_c9_09
	// otherStep is how far apart the alternatives to a token are in the list of
	// them. It does not divide its length.
	otherStep = 7
)

// logprob makes up the probability of a token: the one chosen is always the most
// likely, and the others share the rest by halves. The top n are appended to top.
func (v *vocabulary) logprob(state uint64, id uint32, n int, top []openai.Logprob) openai.TokenLogprob {
	x := mix(state ^ logprobSalt)
	p := 0.55 + 0.4*float64(x>>11)/(1<<53)
	out := openai.TokenLogprob{Logprob: openai.Logprob{Token: v.text(id), Logprob: logOf(p)}}
	rest := 1 - p
	for at := x; len(top) < n; at += otherStep {
		if len(top) == 0 {
			top = append(top, out.Logprob)
		} else if other := v.others[at%uint64(len(v.others))]; other != id {
			rest /= 2
			top = append(top, openai.Logprob{Token: v.text(other), Logprob: logOf(rest)})
		}
	}
	out.Top = top
	return out
}

// logOf returns the logarithm of p with six decimals.
func logOf(p float64) float64 { return math.Round(math.Log(p)*1e6) / 1e6 }
