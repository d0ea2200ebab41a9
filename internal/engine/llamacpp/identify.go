package llamacpp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/engine/promtext"
)

// blockSize is what a block is counted as: the cache itself has none.
const blockSize = 16

// props is what /props tells.
type props struct {
	Slots    openaihttp.Int `json:"total_slots"`
	Build    string         `json:"build_info"`
	Settings struct {
		Context openaihttp.Int `json:"n_ctx"` // of one slot
	} `json:"default_generation_settings"`
}

// slot is one entry of /slots.
type slot struct {
	Processing bool            `json:"is_processing"`
	Context    openaihttp.Int  `json:"n_ctx"`
	Task       *openaihttp.Int `json:"id_task"`
	Prompt     openaihttp.Int  `json:"n_prompt_tokens"`
	Next       json.RawMessage `json:"next_token"` // a list of one, or that one in earlier builds
}

// decoded returns how many tokens the slot has written.
func (s *slot) decoded() openaihttp.Int {
	type next struct {
		Decoded openaihttp.Int `json:"n_decoded"`
	}
	var list []next
	if json.Unmarshal(s.Next, &list) == nil && len(list) > 0 {
		return list[0].Decoded
	}
	var one next
	if json.Unmarshal(s.Next, &one) == nil {
		return one.Decoded
	}
	return 0
}

// lora is one entry of /lora-adapters.
type lora struct {
	ID   openaihttp.Int `json:"id"`
	Path string         `json:"path"`
}

// Identify implements [engine.Engine].
func (e *Engine) Identify(ctx context.Context) (*engine.Info, error) {
	return e.IdentifyWith(ctx, e.Describe)
}

// Describe is Identify for who has the model list already. It takes a few seconds at
// most, whatever the server does not answer; that is taken to be as it was.
func (e *Engine) Describe(ctx context.Context, cards []openaihttp.Card) *engine.Info {
	a := e.ask(ctx)
	n := int(min(max(a.props.Slots, 0), maxSlots))
	if n == 0 {
		n = len(a.slots)
	}
	size := max(a.props.Settings.Context, 0)
	if size == 0 && len(a.slots) > 0 {
		size = max(a.slots[0].Context, 0)
	}
	info := &engine.Info{
		Kind: engine.LlamaCpp, Version: a.props.Build, Models: openaihttp.Models(cards),
		Priority: engine.PriorityIgnored, Slots: n, Life: a.life, Warnings: warnings(!e.noMetrics.Load()),
	}
	ids := make(map[string]int)
	more := a.loras.More
	for _, l := range a.loras.Items {
		name := strings.TrimSuffix(path.Base(strings.ReplaceAll(l.Path, `\`, "/")), ".gguf")
		if _, twice := ids[name]; l.Path == "" || twice || l.ID < 0 {
			continue
		}
		if len(info.Models) == openaihttp.MaxListed {
			more = true
			break
		}
		ids[name] = int(l.ID)
		info.Models = append(info.Models, engine.Model{ID: name, Parent: cards[0].ID})
	}
	e.adapters.Store(&ids)
	if more {
		openaihttp.Warn(info, openaihttp.TooMany)
	}
	for i := range info.Models {
		m := &info.Models[i]
		m.ContextLength = cmp.Or(int(size), m.ContextLength)
		m.BlockSize, m.Ranks, m.MaxSeqs = blockSize, 1, n
		m.TotalBlocks = openaihttp.Count(float64(size)*float64(n)) / blockSize
	}
	return info
}

// answers are what a server tells of itself, with what it does not tell left empty.
type answers struct {
	props props
	slots []slot
	loras openaihttp.List[lora]
	life  string
}

// ask asks for all that a server may tell, at once.
func (e *Engine) ask(ctx context.Context) (a answers) {
	var (
		began             = e.begin()
		counted, measured openaihttp.Answer
		counters          *metrics
		wg                sync.WaitGroup
	)
	wg.Go(func() {
		if p, _ := e.props.Ask(ctx, e.Engine, openaihttp.JSON[props], "/props"); p != nil {
			a.props = *p
		}
	})
	wg.Go(func() {
		var s *openaihttp.List[slot]
		if s, counted = e.slots.Ask(ctx, e.Engine, openaihttp.JSONList[slot], "/slots"); s != nil {
			a.slots = s.Items
		}
	})
	wg.Go(func() {
		if l, _ := e.loras.Ask(ctx, e.Engine, openaihttp.JSONList[lora], "/lora-adapters"); l != nil {
			a.loras = *l
		}
	})
	wg.Go(func() {
		var text []byte
		if text, measured = e.AskFor(ctx, "/metrics"); measured == openaihttp.Told {
			counters = readMetrics(text)
		}
	})
	wg.Wait()
	if measured != openaihttp.Unanswered {
		e.noMetrics.Store(measured == openaihttp.Absent)
	}
	// Numbers of an earlier answer are no news of the server's life.
	var counting []slot
	if counted == openaihttp.Told {
		counting = a.slots
	}
	a.life = e.observe(began, counting, counters)
	return a
}

// Forget drops what the server has told, for one that may have become another.
func (e *Engine) Forget() {
	e.props.Forget()
	e.slots.Forget()
	e.loras.Forget()
	e.noMetrics.Store(false)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.life = life{n: e.life.n + 1}
	e.observed++
}

// begin says that the server is about to be asked for its numbers. What it returns goes
// to observe with them.
func (e *Engine) begin() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.observed
}

// observe tells the lives of the server apart. Numbers that were asked for before others
// were taken in may be older than those and do not count. A nil m has none.
func (e *Engine) observe(began uint64, slots []slot, m *metrics) string {
	tasks, computed := lastTask(slots), math.NaN()
	if m != nil {
		computed = m.computed
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if began != e.observed {
		return e.life.name()
	}
	if !math.IsNaN(tasks) || !math.IsNaN(computed) {
		e.observed++
	}
	return e.life.observe(tasks, computed)
}

// maxSlots is more than any server has.
const maxSlots = 1 << 16

// warnings say what about the server stands in the way.
func warnings(measured bool) []engine.Warning {
	out := []engine.Warning{
		{Code: "no_cache_salt", Text: "the server has no cache salts: requests with one run without its cache, and requests without one can reuse what they leave; give tenants servers of their own where that matters"},
		{Code: "no_events", Text: "the server does not tell of its cache: what it holds is known from the requests sent to it"},
	}
	if !measured {
		out = append(out, engine.Warning{Code: "no_metrics", Text: "requests that wait are not known; start llama-server with --metrics"})
	}
	return slices.Clip(out)
}

// life counts the lives of a server by numbers that grow in each and begin anew.
type life struct {
	n               int
	known           bool    // there was a number
	tasks, computed float64 // the highest so far
}

// observe takes in the highest task that slots have run and the tokens computed, each
// NaN if it is not known, and returns the name of the life, empty as long as no
// number was known.
func (l *life) observe(tasks, computed float64) string {
	if tasks < l.tasks || computed < l.computed {
		l.n++
		l.tasks, l.computed = 0, 0
	}
	for _, x := range []struct {
		to  *float64
		now float64
	}{{&l.tasks, tasks}, {&l.computed, computed}} {
		if !math.IsNaN(x.now) {
			*x.to, l.known = x.now, true
		}
	}
	return l.name()
}

// name returns the name of the life.
func (l *life) name() string {
	if !l.known {
		return ""
	}
	return strconv.Itoa(l.n)
}

// lastTask returns the highest task that slots have run. It is NaN unless each slot
// tells of one: some builds forget it when a slot is idle.
func lastTask(slots []slot) float64 {
	last := math.NaN()
	for _, s := range slots {
		if s.Task == nil || *s.Task < 0 {
			return math.NaN()
		}
		if task := float64(*s.Task); math.IsNaN(last) || task > last {
			last = task
		}
	}
	return last
}

// names are the series that are read.
var names = map[string]bool{
	"llamacpp:requests_processing":    true,
	"llamacpp:requests_deferred":      true,
	"llamacpp:prompt_tokens_total":    true,
	"llamacpp:tokens_predicted_total": true,
}

// metrics are what /metrics says.
type metrics struct {
	running, waiting int
	computed         float64 // tokens since the server was started; NaN if not known
}

func readMetrics(text []byte) *metrics {
	m := &metrics{computed: math.NaN()}
	sum, known := 0.0, false
	for s := range promtext.Samples(text, names) {
		switch s.Name {
		case "llamacpp:requests_processing":
			m.running = openaihttp.Count(s.Value)
		case "llamacpp:requests_deferred":
			m.waiting = openaihttp.Count(s.Value)
		default:
			sum, known = sum+s.Value, true
		}
	}
	if known {
		m.computed = sum
	}
	return m
}

// Load implements [engine.Loader] by /slots and, where they are on, metrics. Usage is
// of what running requests hold.
func (e *Engine) Load(ctx context.Context) ([]engine.Load, error) {
	began := e.begin()
	status, body, err := e.Get(ctx, "/slots")
	if err != nil {
		return nil, err
	}
	var slots []slot
	if status == http.StatusOK {
		list := openaihttp.JSONList[slot](body)
		if list == nil {
			return nil, fmt.Errorf("load %s: /slots is no list", e.URL())
		}
		slots = list.Items
	}
	l := load(slots)
	measured := false
	if !e.noMetrics.Load() {
		if text, answer := e.AskFor(ctx, "/metrics"); answer == openaihttp.Told {
			m := readMetrics(text)
			measured, l.Waiting = true, m.waiting
			if len(slots) == 0 {
				l.Running = m.running
			}
			e.observe(began, slots, m)
		}
	}
	if status != http.StatusOK && !measured {
		return nil, fmt.Errorf("load %s: /slots answered status %d", e.URL(), status)
	}
	return []engine.Load{l}, nil
}

// LoadEvery implements [engine.Sparing]. A server that is asked for its slots more often
// does not notice that the client of an unary request has left: it looks only when
// nothing happened for a second.
func (e *Engine) LoadEvery() time.Duration { return 3 * time.Second }

// load sums up the slots.
func load(slots []slot) (l engine.Load) {
	var used, total float64
	for _, s := range slots {
		total += float64(max(s.Context, 0))
		if s.Processing {
			l.Running++
			used += float64(max(s.Prompt, 0) + max(s.decoded(), 0))
		}
	}
	if total > 0 {
		l.Usage = openaihttp.Share(used / total)
	}
	l.UsedBlocks = openaihttp.Count(used) / blockSize
	l.TotalBlocks = openaihttp.Count(total) / blockSize
	return l
}
