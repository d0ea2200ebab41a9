package doctor

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvlink"
)

// judgeEvents judges all that is about events: where they are, whether they came, all
// of them, and were what they should be.
func (e *exam) judgeEvents(ctx context.Context) {
	if e.ear == nil {
		e.noEvents()
		for _, name := range []string{Gaps, Replay, Match} {
			e.skip(name, "no events")
		}
		e.judgeBlockSize(nil)
		e.ranksCheck()
		return
	}
	_ = e.ear.links.Flush(ctx) // what is not applied in time is not found
	e.replay(ctx)
	links := e.ear.links.Stats()
	for _, p := range e.probes {
		if p.ids != nil && p.found < p.want {
			e.find(p)
		}
	}
	e.judgeBlockSize(links)
	e.ranksCheck()
	e.heard(links)
	e.gaps(links)
	e.match(links)
}

// noEvents says why there is nothing to listen to.
func (e *exam) noEvents() {
	switch {
	case e.target.Events.Events == eventsocket.Off:
		e.skip(Events, "turned off")
		return
	case e.info.Kind == engine.LlamaCpp:
		e.skip(Events, "llama.cpp publishes none: what its slots hold is known from the requests sent to it")
		return
	case e.info.Kind == engine.TRTLLM:
		e.skip(Events, "not asked for: who asks takes them away from everybody else")
		return
	case e.info.Kind != engine.VLLM && e.info.Kind != engine.SGLang:
		e.skip(Events, "engines of kind %s are not known to publish any", e.info.Kind)
		return
	}
	if w := e.warning(eventsocket.Unreachable); w != "" {
		text, advice, _ := strings.Cut(w, "; ")
		e.fail(Events, advice, nil, "%s", text)
		return
	}
	text, advice, _ := strings.Cut(e.warning(eventsocket.NoEvents), "; ")
	if text == "" {
		text = "the engine publishes none"
	}
	if e.info.Kind == engine.VLLM && strings.HasPrefix(text, "no KV events at port") {
		advice += " (vLLM does not listen at tcp://0.0.0.0), or say where they are with events=HOST:PORT"
	}
	e.warn(Events, advice, nil, "%s", text)
}

// alarming are the reasons for leaving events out that hide blocks which should be
// found.
var alarming = []kv.Reason{
	kv.AmbiguousCacheNamespace, kv.UnknownKind, kv.UnlearnedGroupIdx, kv.BlockSizeMismatch, kv.TokenCount,
	kv.UnnamedAdapter, kv.SelfReference, kv.TooLarge, kv.Malformed,
}

// heard judges whether events came.
func (e *exam) heard(links []kvlink.Stats) {
	data := EventsData{Found: e.found(), Ranks: []RankEventsData{}}
	var addresses, broken, quiet, details []string
	var batches, bad uint64
	skipped := make(map[string]uint64)
	for _, l := range links {
		r := RankEventsData{
			Rank: l.Source.Rank, Address: l.Address, Connected: l.Connected, Batches: l.Batches, Events: l.Events, Skipped: map[string]uint64{},
		}
		if l.Timed {
			lag := ms(l.Lag)
			r.LagMS = &lag
		}
		switch {
		case l.LastError != nil:
			r.Error = l.LastError.Error()
		case !l.Connected && !l.Polled: // it still waits for one
			r.Error = "no ZeroMQ greeting"
		}
		for reason, n := range l.Skipped {
			if n == 0 {
				continue
			}
			r.Skipped[kv.Reason(reason).String()] = n
			if slices.Contains(alarming, kv.Reason(reason)) {
				bad += n
				skipped[kv.Reason(reason).String()] += n
			}
		}
		if l.Malformed > 0 {
			bad += l.Malformed
			skipped[kv.Malformed.String()] += l.Malformed
		}
		batches += l.Batches
		data.Eagle, data.ExtraKeys = data.Eagle || l.Eagle, data.ExtraKeys || l.ExtraKeys
		data.Ranks = append(data.Ranks, r)
		name := e.address(&l)
		addresses = append(addresses, name)
		switch {
		case !l.Connected && (!l.Polled || l.LastError != nil): // a poll takes a while
			broken = append(broken, fmt.Sprintf("%s (%s)", name, r.Error))
		case l.Batches == 0 && e.sentTo(l.Source.Rank):
			quiet = append(quiet, name)
		}
	}
	at := strings.Join(addresses, ", ")
	if data.Found != "" && !e.ear.polled {
		at += " (" + data.Found + ")"
	}
	if data.Eagle {
		details = append(details, "blocks of EAGLE")
	}
	if len(details) > 0 {
		at += ", " + strings.Join(details, ", ")
	}
	switch {
	case len(broken) > 0 && !e.ear.polled:
		text := "open the port, or say where they are with events=HOST:PORT"
		if e.info.Kind == engine.VLLM {
			text += `; vLLM listens at "endpoint":"tcp://*:5557" and not at tcp://0.0.0.0:5557`
		}
		e.fail(Events, text, data, "cannot be had from %s", strings.Join(broken, ", "))
	case len(broken) > 0:
		e.warn(Events, eventsAdvice[e.info.Kind], data, "cannot be had: %s", strings.Join(broken, ", "))
	case e.disputed:
		e.warn(Events, "say for each engine which are its own: --engine URL,events=HOST:PORT", data,
			"found at %s by trying, and so were those of another engine: they are not used", strings.Join(addresses, ", "))
	case len(quiet) > 0 && e.ear.polled:
		e.warn(Events, eventsAdvice[e.info.Kind], data, "asked for, and none came after a prompt")
	case len(quiet) > 0:
		text := "see that prefix caching is on and that the socket is this engine's"
		if topic := e.target.Events.Topic; topic != "" {
			text += fmt.Sprintf(", and its topic %q", topic)
		}
		e.fail(Events, text, data, "connected, but nothing came after a prompt from %s", strings.Join(quiet, ", "))
	case bad > 0 && !e.misfit(links):
		e.warn(Events, "", data, "at %s: %d of %d events cannot be used: %s", at, bad, bad+total(links), counts(skipped))
	case e.cfg.NoRequests:
		e.ok(Events, data, "connected to %s", at)
	case batches == 0:
		e.skip(Events, "at %s; there was nothing to hear", at)
	default:
		e.ok(Events, data, "at %s, %s", at, plural(batches, "batch", "batches"))
	}
}

func total(links []kvlink.Stats) (n uint64) {
	for _, l := range links {
		n += l.Events
	}
	return n
}

// misfit reports whether events have tokens that do not fit the block size which they
// state: a matter of that.
func (e *exam) misfit(links []kvlink.Stats) bool {
	for _, l := range links {
		if l.Skipped[kv.TokenCount] > 0 && l.BlockSize == 0 {
			return true
		}
	}
	return false
}

func counts(m map[string]uint64) string {
	var parts []string
	for name, n := range m {
		parts = append(parts, fmt.Sprintf("%d %s", n, name))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// found says how the sockets were found.
func (e *exam) found() string {
	switch o := e.target.Events.Events; {
	case e.ear.polled:
		return "polled"
	case o != "" && o != eventsocket.Auto:
		return "configured"
	case e.guessed():
		return "guessed"
	default:
		return "announced"
	}
}

// address names a link.
func (e *exam) address(l *kvlink.Stats) string {
	if l.Polled {
		return "/kv_cache_events"
	}
	if e.ranks > 1 {
		return fmt.Sprintf("%s of rank %d", l.Address, l.Source.Rank)
	}
	return l.Address
}

// sentTo reports whether a rank has answered a prompt.
func (e *exam) sentTo(rank uint32) bool {
	return slices.ContainsFunc(e.probes, func(p *probe) bool { return p.rank == rank && p.answer != nil })
}

// gaps judges whether all batches came.
func (e *exam) gaps(links []kvlink.Stats) {
	var data GapsData
	for _, l := range links {
		data.Batches += l.Batches
		data.Gaps += l.Feed.Gaps
		data.Missed += l.Feed.Missed
	}
	for _, r := range e.lost {
		data.Gaps++
		data.Missed += r
	}
	switch {
	case data.Gaps > 0 && e.ear.polled:
		e.fail(Gaps, "let one router ask and nobody else: who asks takes events away from the others", data,
			"%s missing: somebody else asks for them, or the engine's buffer is too small", plural(data.Missed, "event is", "events are"))
	case data.Gaps > 0 && e.replays:
		e.warn(Gaps, "see that nothing between is slow, and raise hwm in the engine's --kv-events-config", data,
			"%s lost on the way; the engine can be asked for them", plural(data.Missed, "batch was", "batches were"))
	case data.Gaps > 0:
		e.fail(Gaps, "see that nothing between is slow, raise hwm in the engine's --kv-events-config, and give it a replay_endpoint", data,
			"%s lost on the way for good: what is known of the cache goes wrong", plural(data.Missed, "batch was", "batches were"))
	case data.Batches == 0:
		e.skip(Gaps, "nothing was heard")
	default:
		e.ok(Gaps, data, "none in %s", plural(data.Batches, "batch", "batches"))
	}
}

// replay judges whether lost batches can be asked for, and finds those that were lost
// last, which no later one has shown.
func (e *exam) replay(ctx context.Context) {
	if e.ear.polled {
		e.skip(Replay, "TensorRT-LLM has none: what is missed is cleared and learned again")
		return
	}
	data := ReplayData{Ranks: []RankReplayData{}}
	var missing, broken []string
	for _, s := range e.info.Streams {
		name := s.Replay
		if e.ranks > 1 {
			name = fmt.Sprintf("%s of rank %d", name, s.Rank)
		}
		for _, other := range e.info.Streams {
			if s.Replay != "" && s.Replay == other.Address {
				broken = append(broken, fmt.Sprintf("%s is also where rank %d publishes: leave %d ports between endpoint and replay_endpoint", name, other.Rank, e.ranks))
			}
		}
		if s.Replay == "" {
			missing = append(missing, s.Address)
			continue
		}
		r := RankReplayData{Rank: s.Rank, Address: s.Replay}
		if err := e.tryReplay(ctx, s); err != nil {
			r.Error = err.Error()
			broken = append(broken, fmt.Sprintf("%s: %v", name, err))
		}
		data.Ranks = append(data.Ranks, r)
	}
	switch {
	case len(broken) > 0:
		e.fail(Replay, "open the port, or correct replay_endpoint", data, "%s", strings.Join(broken, "; "))
	case len(missing) > 0:
		e.warn(Replay, replayAdvice(missing[0]), data, "there is none for %s: events that are lost stay lost", strings.Join(missing, ", "))
	default:
		e.replays = true
		e.ok(Replay, data, "answers at %s", data.Ranks[0].Address)
	}
}

// replayAdvice says how the engine that publishes at an address is made to answer for
// lost events: at a port that leaves room for ranks.
func replayAdvice(addr string) string {
	at := 5657
	if _, port, err := net.SplitHostPort(addr); err == nil {
		if n, err := strconv.Atoi(port); err == nil && n < 65000 {
			at = n + 100
		}
	}
	return fmt.Sprintf(`add "replay_endpoint":"tcp://*:%d" to the engine's --kv-events-config`, at)
}

// tryReplay asks a rank's replay socket for what comes after the last batch that was
// heard. A batch that is there and does not arrive is lost.
func (e *exam) tryReplay(ctx context.Context, s engine.EventStream) error {
	position := func() (uint64, bool) {
		for _, l := range e.ear.links.Stats() {
			if l.Source.Rank == s.Rank {
				return l.Feed.Next, l.Feed.Known
			}
		}
		return 0, false
	}
	from, known := position()
	if !known {
		from = unheard
	}
	next, err := askReplay(ctx, s.Replay, from, e.cfg.patience)
	if err != nil || !known || next == from {
		return err
	}
	if !wait(ctx, e.cfg.patience/3, func() bool { now, _ := position(); return now >= next }) {
		now, _ := position()
		e.lost = append(e.lost, next-now)
	}
	return nil
}

// match judges whether events told of the blocks of our prompts, by the hashes that the
// router looks for.
func (e *exam) match(links []kvlink.Stats) {
	data := MatchData{Ranks: []RankMatchData{}}
	want, found := 0, 0
	unknown := false
	for _, p := range e.probes {
		data.Ranks = append(data.Ranks, RankMatchData{Rank: p.rank, Blocks: p.want, Found: p.found})
		want, found = want+p.want, found+p.found
		unknown = unknown || p.ids == nil || p.answer == nil ||
			p.answer.usage != nil && p.answer.usage.Prompt != uint64(len(p.ids))
	}
	all := !slices.ContainsFunc(e.probes, func(p *probe) bool { return p.found == 0 })
	switch {
	case e.cfg.NoRequests:
		e.skip(Match, "no requests were sent")
	case len(e.probes) == 0 || want > 0 && found == 0 && e.batches() == 0:
		e.skip(Match, "nothing was heard")
	case want > 0 && all && found >= want-len(e.probes): // an engine may keep the last block of a prompt to itself
		e.ok(Match, data, "%d of %s in our prompts told of", found, plural(uint64(want), "block", "blocks"))
	case unknown:
		e.skip(Match, "which tokens the prompts have is not known for sure")
	case e.misfit(links) || want == 0:
		e.skip(Match, "the size of blocks is not known")
	case e.lossy():
		e.skip(Match, "batches were lost")
	case slices.ContainsFunc(e.probes, func(p *probe) bool { return len(p.elsewhere) > 0 }):
		e.skip(Match, "requests ran on other ranks")
	case e.disputed:
		e.skip(Match, "the socket may be another engine's: %d of %d blocks were told of", found, want)
	default:
		e.fail(Match, "see that the socket is this engine's and nothing changes prompts on their way", data,
			"events came, but only %d of %d blocks of our prompts were among them", found, want)
	}
}

// judgeBlockSize holds the sizes of blocks against each other.
func (e *exam) judgeBlockSize(links []kvlink.Stats) {
	data := BlockSizeData{Configured: e.target.BlockSize, Stated: e.model.BlockSize, Events: e.heardSize()}
	said := func(n int, none string) string {
		if n == 0 {
			return none
		}
		return fmt.Sprint(n)
	}
	text := fmt.Sprintf("%s configured, %s stated by the engine, %s in its events",
		said(data.Configured, "none"), said(data.Stated, "none"), said(data.Events, "none"))
	known := slices.DeleteFunc([]int{data.Configured, data.Stated, data.Events}, func(n int) bool { return n == 0 })
	slices.Sort(known)
	known = slices.Compact(known)
	fix := "correct or leave out block_size; the events are what counts"
	if data.Configured == 0 {
		fix = "set block_size of this engine in the file; the events are what counts"
	}
	switch {
	case e.info.Kind == engine.LlamaCpp && data.Configured == 0:
		e.ok(BlockSize, data, "%d tokens, by which its cache is counted: it has no blocks of its own", data.Stated)
	case len(known) > 1:
		e.fail(BlockSize, fix, data, "%s", text)
	case e.misfit(links):
		e.fail(BlockSize, fix, data, "%s: the tokens in events are not as many as the size that they state", text)
	case len(known) == 0 && e.info.Kind == engine.OpenAI:
		e.skip(BlockSize, "the engine does not say")
	case len(known) == 0 && e.info.Kind == engine.TRTLLM && !e.sentTo(0):
		e.skip(BlockSize, "TensorRT-LLM tells it once it has run something")
	case len(known) == 0:
		e.warn(BlockSize, "set block_size", data, "not known: %s", text)
	case known[0] == 1:
		e.warn(BlockSize, "start SGLang with --page-size 16 or more", data, "1: each token is an event and an entry of the index")
	default:
		e.ok(BlockSize, data, "%d tokens", known[0])
	}
}
