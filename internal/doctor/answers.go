package doctor

import (
	"fmt"
	"strings"
)

// answered judges whether prompts are answered at all.
func (e *exam) answered() {
	for _, p := range e.probes {
		if p.err != nil {
			e.fail(Answer, "see the engine's log", nil, "a prompt for one token: %s", unanswered(p.err))
			return
		}
	}
	first := e.probes[0].answer
	data := AnswerData{LatencyMS: ms(first.took)}
	what := "a prompt"
	if first.usage != nil {
		data.PromptTokens = int(first.usage.Prompt)
		what = fmt.Sprintf("a prompt of %d tokens", data.PromptTokens)
	}
	e.ok(Answer, data, "%s was answered in %s", what, short(first.took))
}

// cached judges whether answers tell what was found in the cache.
func (e *exam) cached() {
	if e.again == nil {
		e.skip(CachedTokens, "not tried")
		return
	}
	var data CachedData
	first, again := e.probes[0].answer.usage, e.again.usage
	if first != nil && first.HasCached {
		data.First = &first.Cached
	}
	if again != nil {
		data.PromptTokens = again.Prompt
		if again.HasCached {
			data.Again = &again.Cached
		}
	}
	_, flag, _ := strings.Cut(e.warning("prefix_caching_off"), "; ")
	switch {
	case data.Again == nil:
		e.warn(CachedTokens, cachedAdvice[e.info.Kind], data, "answers do not say how much of a prompt was cached: what is known of the cache cannot be proven")
	case *data.Again == 0:
		if flag == "" {
			flag = cachingAdvice[e.info.Kind]
		}
		e.warn(CachedTokens, flag, data, "a prompt of %d tokens was sent twice, and nothing of it was cached", data.PromptTokens)
	default:
		e.ok(CachedTokens, data, "%d of %d prompt tokens were cached the second time", *data.Again, data.PromptTokens)
	}
}

// usage judges whether streams tell what they used.
func (e *exam) usage() {
	switch {
	case e.chat == nil && e.chatErr == nil: // it was not sent: nothing was answered before
		e.skip(Usage, "not tried")
	case e.chatErr != nil:
		e.fail(Usage, "", nil, "a streamed chat: %s", unanswered(e.chatErr))
	case e.chat.usage == nil:
		e.warn(Usage, "use a release of the engine that heeds stream_options.include_usage", nil, "streams end without a usage, though it was asked for")
	default:
		u := e.chat.usage
		e.ok(Usage, UsageData{PromptTokens: u.Prompt, CompletionTokens: u.Completion}, "streams tell it: %d prompt tokens, %d generated", u.Prompt, u.Completion)
	}
}

// isolation judges whether a salt keeps prompts apart.
func (e *exam) isolation() {
	data := SaltData{Told: e.saltSeen}
	if data.Told != nil && !*data.Told && e.lossy() {
		data.Told = nil
	}
	if e.salted != nil && e.salted.usage != nil && e.salted.usage.HasCached {
		data.CachedTokens = &e.salted.usage.Cached
	}
	switch {
	case !e.salts():
		text := e.warning("no_cache_salt")
		if text == "" {
			text = "the engine has none"
		}
		e.skip(Salt, "%s", text)
	case e.salt == "":
		e.skip(Salt, "not tried")
	case e.saltErr != nil:
		e.warn(Salt, "give tenants engines of their own, or use a release with cache_salt", nil, "a prompt with a cache salt: %s", unanswered(e.saltErr))
	case data.CachedTokens != nil && *data.CachedTokens > 0:
		e.fail(Salt, "give tenants engines of their own, or use a release with cache_salt", data,
			"%d tokens of a prompt were cached from one without its salt: tenants share a cache", *data.CachedTokens)
	case data.Told != nil && !*data.Told:
		e.warn(Salt, "use vLLM 0.17 or SGLang 0.5.18 and later", data, "kept apart, but events do not say which salt a block has: prompts with one are not found")
	case data.CachedTokens == nil && !e.reportsCached():
		e.add(Check{Name: Salt, Status: Skip, Text: "taken; whether it keeps prompts apart cannot be seen, as answers do not say what was cached", Data: data})
	case data.Told != nil:
		e.ok(Salt, data, "keeps prompts apart, and events tell of it")
	default:
		e.ok(Salt, data, "keeps prompts apart")
	}
}
