package simengine

import (
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// naive is the vLLM scheduler under its current rules, one rule to a function.
// It keeps lists and counts them anew whenever it wants to know something, where
// the engine keeps sums and remembers what it need not look at again.
type naive struct {
	cfg    Config // with defaults
	blocks []*naiveBlock
	known  []*naiveBlock // blocks that can be found, in the order they became so
	unused []*naiveBlock // those of them that nobody uses, in the order they were let go

	running  []*naiveRequest // in the order of admission
	waiting  []*naiveRequest
	warm     []*naiveRequest // warm-ups that wait
	rejected []*naiveRequest // to be told with the next pass

	pass *naivePass
	seen map[string]int // how often the rarer things happened
}

// naiveBlock is a block: free, unless its content is known or somebody uses it.
type naiveBlock struct {
	id    kv.BlockID
	known bool
	users int
}

// naiveRequest is a request as the model sees it.
type naiveRequest struct {
	id        uint64
	prompt    int
	limit     int     // tokens to generate
	content   Content // nil: shares nothing
	warm      bool
	generated int
	preempted bool // has lost its blocks before
	cached    int  // prompt tokens found when it was admitted first
	admitted  bool

	blocks   []*naiveBlock
	named    int // leading blocks that are known
	computed int // tokens whose keys and values are in blocks

	// What the pass under way does for it.
	planned    bool
	from, upTo int // tokens computed
	decode     bool
	drafts     int
}

// naivePass is what a pass did, requests by their IDs.
type naivePass struct {
	Outputs    []naiveOutput
	Admissions []naiveAdmission
	Rejected   []uint64
	Preempted  int
	Events     []kv.Event
	Batch      Batch
}

type naiveOutput struct {
	ID     uint64
	Tokens int
	Done   bool
}

type naiveAdmission struct {
	ID     uint64
	Cached int
	Again  bool
}

func newNaive(cfg Config, seen map[string]int) *naive {
	n := &naive{cfg: cfg, seen: seen}
	for range cfg.Blocks {
		n.blocks = append(n.blocks, &naiveBlock{})
	}
	return n
}

// receive puts a request at the end of its line, or among the rejected.
func (n *naive) receive(q *naiveRequest, maxOutput int) {
	q.limit = n.limit(q, maxOutput)
	switch {
	case n.impossible(q):
		n.rejected = append(n.rejected, q)
	case q.warm:
		n.warm = append(n.warm, q)
	default:
		n.waiting = append(n.waiting, q)
	}
}

// limit counts the tokens that q can be given: one after the other, as long as
// they are wanted and prompt and answer are within the context, and all but the
// last, which is never computed, have room in the cache.
func (n *naive) limit(q *naiveRequest, maxOutput int) (tokens int) {
	if q.warm {
		return 0
	}
	if n.cfg.Role == Prefill {
		maxOutput = min(maxOutput, 1)
	}
	for tokens < maxOutput && q.prompt+tokens < n.cfg.MaxModelLen && q.prompt+tokens <= n.capacity() {
		tokens++
	}
	return tokens
}

// impossible: a request that is empty, that is not a warm-up and cannot have a
// single token, or whose prompt is too long for the cache or leaves no room in
// the context, never runs.
func (n *naive) impossible(q *naiveRequest) bool {
	return q.prompt < 1 || !q.warm && q.limit < 1 || q.prompt > n.capacity() || q.prompt >= n.cfg.MaxModelLen
}

func (n *naive) capacity() int { return n.cfg.Blocks * n.cfg.BlockSize }

// drop forgets a request, wherever it is.
func (n *naive) drop(q *naiveRequest) {
	for _, line := range []*[]*naiveRequest{&n.running, &n.waiting, &n.warm, &n.rejected} {
		*line = naiveWithout(*line, q)
	}
	n.letGo(q)
}

// naiveWithout returns the list without v.
func naiveWithout[T comparable](list []T, v T) []T {
	return slices.DeleteFunc(list, func(w T) bool { return w == v })
}

// requests is how many there are.
func (n *naive) requests() int {
	return len(n.running) + len(n.waiting) + len(n.warm) + len(n.rejected)
}

func (n *naive) load() Load {
	return Load{
		Running:      len(n.running),
		Waiting:      len(n.waiting) + len(n.warm),
		ActiveBlocks: n.active(),
		CachedBlocks: len(n.unused),
		TotalBlocks:  n.cfg.Blocks,
	}
}

// step is one pass: requests before warm-ups, and those that run before those that
// wait. Requests that wait are let in unless one that runs has taken blocks from
// another; warm-ups that wait, unless anybody has, or a request still waits.
func (n *naive) step() *naivePass {
	n.pass = &naivePass{}
	if n.requests() == 0 {
		return n.pass
	}
	for _, q := range n.rejected {
		n.pass.Rejected = append(n.pass.Rejected, q.id)
		n.seen["rejected"]++
	}
	n.rejected = nil
	for _, q := range n.running {
		q.planned, q.from, q.upTo, q.decode, q.drafts = false, 0, 0, false, 0
	}
	n.advance(false)
	if n.pass.Preempted == 0 {
		n.admit(&n.waiting)
	}
	n.advance(true)
	if n.pass.Preempted == 0 && len(n.waiting) == 0 {
		n.admit(&n.warm)
	} else if len(n.waiting) == 0 && n.budget() > 0 && len(n.running) < n.cfg.MaxSeqs && n.fits(n.warm[0], n.prefix(n.warm[0])) {
		n.seen["warm-up kept out by a preemption alone"]++
	}
	n.finish()
	return n.pass
}

// budget is what the pass has left: what was planned for a request that has lost
// its blocks since is not in the pass.
func (n *naive) budget() int {
	left := n.cfg.MaxBatchedTokens
	for _, q := range n.running {
		left -= q.upTo - q.from + q.drafts
	}
	return left
}

// advance plans the running requests, or the running warm-ups, in the order of
// admission. What they compute can be found by others when all are planned.
func (n *naive) advance(warm bool) {
	for n.budget() > 0 {
		i := slices.IndexFunc(n.running, func(q *naiveRequest) bool { return q.warm == warm && !q.planned })
		if i < 0 {
			break
		}
		n.advanceOne(n.running[i])
	}
	for _, q := range n.running {
		n.name(q)
	}
}

// advanceOne plans as much of q as the budget allows. As long as there are too few
// blocks for it somebody gives way, and when that is q itself, it is over for q.
func (n *naive) advanceOne(q *naiveRequest) {
	tokens := min(q.length()-q.computed, n.budget())
	drafts := n.drafts(q, n.budget()-tokens)
	for n.blocksFor(q.computed+tokens+drafts)-len(q.blocks) > n.cfg.Blocks-n.active() {
		victim := n.victim()
		switch {
		case victim.warm && victim != q:
			n.seen["warm-up gave blocks"]++
		case victim.warm:
			n.seen["warm-up found no block"]++
		case victim == q:
			n.seen["gave up its own blocks"]++
		case victim.planned:
			n.seen["lost what was planned"]++
		}
		n.preempt(victim)
		if victim == q {
			return
		}
	}
	n.compute(q, tokens, drafts)
}

// drafts counts the tokens to speculate: for a request that only lacks the token
// sampled last, one after the other, as long as the answer can have them and one
// more, and budget and cache have room.
func (n *naive) drafts(q *naiveRequest, budget int) (drafts int) {
	if q.generated == 0 || q.length()-q.computed != 1 {
		return 0
	}
	for drafts < n.cfg.Draft && q.generated+drafts+1 < q.limit && drafts < budget && q.length()+drafts < n.capacity() {
		drafts++
	}
	return drafts
}

// victim is who gives way: the newest warm-up, if there is one.
func (n *naive) victim() *naiveRequest {
	if q := n.newestWarmUp(); q != nil {
		return q
	}
	if n.cfg.Victim == Oldest {
		return n.running[0]
	}
	return n.running[len(n.running)-1]
}

// newestWarmUp is the running warm-up that was admitted last, or nil.
func (n *naive) newestWarmUp() *naiveRequest {
	for _, q := range slices.Backward(n.running) {
		if q.warm {
			return q
		}
	}
	return nil
}

// preempt takes a request's blocks and has it wait before all others.
func (n *naive) preempt(q *naiveRequest) {
	n.running = naiveWithout(n.running, q)
	n.letGo(q)
	q.preempted = true
	if q.warm {
		n.warm = slices.Insert(n.warm, 0, q)
	} else {
		n.waiting = slices.Insert(n.waiting, 0, q)
	}
	n.pass.Preempted++
	n.seen["preempted"]++
}

// admit lets requests in, in the order of the line, as long as there is budget
// and the first of them can run.
func (n *naive) admit(line *[]*naiveRequest) {
	for len(*line) > 0 && n.budget() > 0 && n.admitOne((*line)[0], line) {
	}
}

// admitOne lets q in if it finds a place among those that run, room for all of its
// tokens, and a budget. What it computes can be found by the next.
func (n *naive) admitOne(q *naiveRequest, line *[]*naiveRequest) bool {
	placeGiven := false
	if len(n.running) >= n.cfg.MaxSeqs {
		if !n.warmUpYields(q) {
			return false
		}
		placeGiven = true
		n.seen["warm-up gave its place"]++
	}
	prefix := n.prefix(q)
	for !n.fits(q, prefix) {
		if !n.warmUpYields(q) {
			if placeGiven {
				n.seen["warm-up gave its place in vain"]++
			}
			return false
		}
		n.seen["warm-up gave room"]++
	}
	tokens := q.length() - len(prefix)*n.cfg.BlockSize
	if n.cfg.NoChunkedPrefill {
		// What is longer than any budget goes first in its pass.
		if budget := n.budget(); tokens > budget && budget < n.cfg.MaxBatchedTokens {
			return false
		}
	} else {
		tokens = min(tokens, n.budget())
	}
	*line = (*line)[1:]
	for _, b := range prefix {
		n.use(b)
	}
	q.blocks, q.named, q.computed = prefix, len(prefix), len(prefix)*n.cfg.BlockSize
	cached := min(q.computed, q.prompt)
	if !q.admitted {
		q.admitted, q.cached = true, cached
	}
	n.pass.Admissions = append(n.pass.Admissions, naiveAdmission{q.id, cached, q.preempted})
	n.running = append(n.running, q)
	n.compute(q, tokens, 0)
	n.name(q)
	return true
}

// warmUpYields has the newest warm-up give way to q, unless q is one itself.
func (n *naive) warmUpYields(q *naiveRequest) bool {
	w := n.newestWarmUp()
	if q.warm || w == nil {
		return false
	}
	n.preempt(w)
	return true
}

// fits is the gate: all of q has to find room beside what is in use, and the
// blocks of its prefix that are in use need none. Some blocks are left free, unless
// nothing runs.
func (n *naive) fits(q *naiveRequest, prefix []*naiveBlock) bool {
	need := n.blocksFor(q.length())
	for _, b := range prefix {
		if b.users > 0 {
			need--
		}
	}
	room := n.cfg.Blocks - n.active()
	if len(n.running) > 0 {
		room -= int(n.cfg.Watermark * float64(n.cfg.Blocks))
	}
	return need <= room
}

// prefix finds the blocks that q begins with. Its last token is computed in any
// case, and with drafts one block more.
func (n *naive) prefix(q *naiveRequest) (found []*naiveBlock) {
	if !n.shares(q) {
		return nil
	}
	for i := range (q.length() - 1) / n.cfg.BlockSize {
		b := n.find(q.content.Block(i).ID)
		if b == nil {
			break
		}
		found = append(found, b)
	}
	if n.cfg.Draft > 0 && len(found) > 0 {
		found = found[:len(found)-1]
	}
	return found
}

// find returns the block that has had this content longest, or nil.
func (n *naive) find(id kv.BlockID) *naiveBlock {
	i := slices.IndexFunc(n.known, func(b *naiveBlock) bool { return b.id == id })
	if i < 0 {
		return nil
	}
	return n.known[i]
}

// compute gives q blocks and plans its next tokens.
func (n *naive) compute(q *naiveRequest, tokens, drafts int) {
	for len(q.blocks) < n.blocksFor(q.computed+tokens+drafts) {
		q.blocks = append(q.blocks, n.take())
	}
	q.planned = true
	q.decode = q.generated > 0 && q.computed == q.length()-1
	q.from, q.upTo, q.drafts = q.computed, q.computed+tokens, drafts
	q.computed = q.upTo
}

// name makes the full blocks that q has computed known, each a copy of its own
// even if there are others.
func (n *naive) name(q *naiveRequest) {
	if !n.shares(q) {
		return
	}
	for ; q.named < q.computed/n.cfg.BlockSize; q.named++ {
		content := q.content.Block(q.named)
		if n.find(content.ID) != nil {
			n.seen["copied"]++
		}
		b := q.blocks[q.named]
		b.id, b.known = content.ID, true
		n.known = append(n.known, b)
		n.tellStored(q, content)
	}
}

// tellStored tells of the next block of q. A block that follows the one told of
// last goes into the same event.
func (n *naive) tellStored(q *naiveRequest, content kv.Block) {
	if n.silent() {
		return
	}
	events := n.pass.Events
	next := kv.Event{Kind: kv.Stored, Counted: true, Blocks: []kv.Block{content}}
	if q.named > 0 {
		next.Parent, next.HasParent = q.content.Block(q.named-1).ID, true
		if len(events) > 0 {
			last := &events[len(events)-1]
			if last.Kind == kv.Stored && last.Blocks[len(last.Blocks)-1].ID == next.Parent {
				last.Blocks = append(last.Blocks, content)
				return
			}
		}
	}
	n.pass.Events = append(events, next)
}

// take returns a free block with one user. When none is free, the one that has
// been without a user longest is emptied.
func (n *naive) take() *naiveBlock {
	i := slices.IndexFunc(n.blocks, func(b *naiveBlock) bool { return b.users == 0 && !b.known })
	if i >= 0 {
		n.blocks[i].users = 1
		return n.blocks[i]
	}
	b := n.unused[0]
	first := n.find(b.id)
	n.unused = n.unused[1:]
	n.known = naiveWithout(n.known, b)
	if n.find(b.id) != nil {
		n.seen["evicted one of several copies"]++
		if first != b {
			n.seen["evicted another copy than the oldest"]++
		}
	}
	b.known, b.users = false, 1
	if !n.silent() {
		n.pass.Events = append(n.pass.Events, kv.Event{Kind: kv.Removed, Counted: true, Blocks: []kv.Block{{ID: b.id}}})
	}
	return b
}

// use adds a user to a block that was found.
func (n *naive) use(b *naiveBlock) {
	n.unused = naiveWithout(n.unused, b)
	b.users++
}

// letGo takes q's blocks from it, the last first. Those that nobody else uses are
// kept if they can be found.
func (n *naive) letGo(q *naiveRequest) {
	for _, b := range slices.Backward(q.blocks) {
		if b.users--; b.users == 0 && b.known {
			n.unused = append(n.unused, b)
		}
	}
	q.blocks, q.named, q.computed = nil, 0, 0
}

// finish computes the pass: requests that have all their tokens computed get the
// next one and the drafts that are right, and warm-ups end.
func (n *naive) finish() {
	batch := &n.pass.Batch
	*batch = Batch{Kind: VLLM, ActiveBlocks: n.active(), TotalBlocks: n.cfg.Blocks, BlockSize: n.cfg.BlockSize}
	for _, q := range slices.Clone(n.running) {
		if q.upTo > q.from && !q.decode {
			batch.Prompts++
			batch.Prefix += q.from
			batch.Tokens += q.upTo
		}
		if q.computed < q.length() {
			continue
		}
		tokens := 0
		if !q.warm {
			batch.Decodes++
			batch.Context += q.length()
			right := n.rightDrafts(q)
			n.seen["right drafts"] += right
			tokens = 1 + right
			q.generated += tokens
			q.computed = q.length() - 1
		}
		done := q.generated >= q.limit
		if done {
			n.running = naiveWithout(n.running, q)
			n.letGo(q)
		}
		n.pass.Outputs = append(n.pass.Outputs, naiveOutput{q.id, tokens, done})
	}
}

// rightDrafts counts the speculated tokens that are right: up to the first for
// which a draw by request and position says no.
func (n *naive) rightDrafts(q *naiveRequest) (right int) {
	for ; right < q.drafts; right++ {
		draw := mix(n.cfg.Seed ^ mix(q.id^mix(uint64(q.generated+right))))
		if float64(draw>>11)/(1<<53) >= n.cfg.Accept[right] {
			break
		}
	}
	return right
}

// active counts the blocks in use.
func (n *naive) active() (count int) {
	for _, b := range n.blocks {
		if b.users > 0 {
			count++
		}
	}
	return count
}

// blocksFor is how many blocks hold so many tokens.
func (n *naive) blocksFor(tokens int) (blocks int) {
	for blocks*n.cfg.BlockSize < tokens {
		blocks++
	}
	return blocks
}

// shares reports whether q's blocks are to be found by others, and others' by it.
func (n *naive) shares(q *naiveRequest) bool { return q.content != nil && !n.cfg.NoPrefixCaching }

// silent reports whether nobody is told about the cache.
func (n *naive) silent() bool { return n.cfg.Role == Decode || n.cfg.NoPrefixCaching }

func (q *naiveRequest) length() int { return q.prompt + q.generated }
