package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/stator-ai/stator/internal/engine"
)

// models lists what the engine serves.
func (e *exam) models() {
	var data ModelsData
	var models, adapters []string
	for _, m := range e.info.Models {
		data.Models = append(data.Models, ModelData{ID: m.ID, Parent: m.Parent, ContextLength: m.ContextLength})
		switch {
		case m.Parent != "":
			adapters = append(adapters, m.ID)
		case m.ContextLength > 0:
			models = append(models, fmt.Sprintf("%s (context %d)", m.ID, m.ContextLength))
		default:
			models = append(models, m.ID)
		}
	}
	text := strings.Join(models, ", ")
	if len(adapters) > 0 {
		text += ", adapters " + strings.Join(adapters, ", ")
	}
	if w := e.warning("adapters_not_told"); w != "" && len(adapters) > 0 {
		e.warn(Models, "", data, "%s: %s", text, w)
		return
	}
	e.ok(Models, data, "%s", text)
}

// sizes tells of what the engine has room for. The size of blocks is judged when events
// have been heard.
func (e *exam) sizes() {
	stated, configured := e.model.TotalBlocks, e.target.TotalBlocks
	switch {
	case stated > 0 && configured > 0 && stated != configured:
		e.warn(KVBlocks, "correct total_kv_blocks, or leave it out", CountData{stated, configured}, "configured %d, but the engine says %d", configured, stated)
	case stated > 0 || configured > 0:
		e.ok(KVBlocks, CountData{stated, configured}, "%d in each rank", max(stated, configured))
	default:
		e.skip(KVBlocks, "the engine does not say")
	}
	seqs := e.model.MaxSeqs
	switch {
	case e.info.Slots > 0:
		e.ok(MaxSeqs, CountData{Count: e.info.Slots}, "%d slots, each with a cache of its own", e.info.Slots)
	case seqs > 0:
		e.ok(MaxSeqs, CountData{Count: seqs}, "%d requests at a time", seqs)
	default:
		e.skip(MaxSeqs, "the engine does not say")
	}
}

// load asks for the engine's load.
func (e *exam) load(ctx context.Context) {
	loader, ok := e.engine.(engine.Loader)
	if !ok {
		e.skip(Load, "engines of kind %s are not asked; what is sent to them is counted", e.info.Kind)
		return
	}
	loads, err := loader.Load(ctx)
	text, advice, _ := strings.Cut(e.warning("no_metrics"), "; ")
	if err != nil {
		if advice == "" {
			advice = "see that its metrics are on and can be reached"
		}
		e.warn(Load, advice, nil, "%s", unanswered(err))
		return
	}
	data := LoadData{Ranks: []RankLoadData{}}
	var running, waiting int
	var usage float64
	for _, l := range loads {
		data.Ranks = append(data.Ranks, RankLoadData{Rank: l.Rank, Running: l.Running, Waiting: l.Waiting, Usage: l.Usage})
		running, waiting, usage = running+l.Running, waiting+l.Waiting, max(usage, l.Usage)
	}
	if text != "" {
		e.warn(Load, advice, data, "%s", text)
		return
	}
	e.ok(Load, data, "%d running, %d waiting, %.0f %% of the KV cache in use", running, waiting, 100*usage)
}

// priority tells what becomes of priorities.
func (e *exam) priority() {
	data := PriorityData{Priority: e.info.Priority.String()}
	switch {
	case e.info.Kind == engine.LlamaCpp:
		e.skip(Priority, "llama.cpp has none: requests run in the order they come")
	case e.info.Priority == engine.PriorityHonoured:
		e.ok(Priority, data, "honoured")
	case e.info.Priority == engine.PriorityIgnored:
		text, advice, _ := strings.Cut(e.warning("priority_ignored"), "; ")
		if text == "" {
			text = "the engine takes requests in the order they come"
		}
		e.warn(Priority, advice, data, "ignored: %s", text)
	default:
		text := "the engine does not say"
		switch e.info.Kind {
		case engine.VLLM:
			text += "; vLLM goes by them if it was started with --scheduling-policy priority"
		case engine.TRTLLM:
			text += "; TensorRT-LLM goes by them with scheduler_config.waiting_queue_policy: priority"
		}
		e.add(Check{Name: Priority, Status: Skip, Text: text, Data: data})
	}
}

// ranksCheck tells how many ranks there are, and whether requests reach the one that
// they are sent to.
func (e *exam) ranksCheck() {
	stated, configured := max(e.model.Ranks, 1), e.target.Ranks
	data := CountData{stated, configured}
	if configured > 0 && configured != stated {
		e.fail(Ranks, "correct ranks, or leave it out", data, "configured %d, but the engine has %d", configured, stated)
		return
	}
	if w := e.warning("ranks_not_chosen"); w != "" {
		e.warn(Ranks, "", data, "%d: %s", stated, w)
		return
	}
	for _, p := range e.probes {
		if p.found == 0 && len(p.elsewhere) > 0 {
			e.fail(Ranks, "use a release of the engine that heeds X-Data-Parallel-Rank", data,
				"a request for rank %d ran on rank %d", p.rank, p.elsewhere[0])
			return
		}
	}
	e.ok(Ranks, data, "%d", stated)
}
