package kv

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/tinylib/msgp/msgp"
)

// DecoderConfig says how a [Decoder] reads an engine's events.
type DecoderConfig struct {
	// Source is the rank that publishes. A batch that names another rank is that
	// rank's.
	Source Source
	// BlockSize is the engine's, in tokens. 0 means what the events tell, see
	// [Decoder.BlockSize].
	BlockSize int
	// Counted says that the engine tells of every copy of a block, as vLLM does and
	// SGLang does not, see [Event].
	Counted bool
	// MaxSalted bounds the blocks whose cache salt is remembered for the blocks
	// that follow them, see [Decoder.SaltsForgotten]. Each takes up to 40 bytes.
	// 0 means 262144.
	MaxSalted int
}

const defaultMaxSalted = 262144

// The most that one batch may make.
const (
	maxEvents = 1 << 18
	maxBlocks = 1 << 20
)

// Decoder makes batches of what one rank of an engine publishes: vLLM since 0.9,
// SGLang since 0.4.6, and what imitates them. It goes by what is there and not by
// versions, so that an engine may be replaced by another release while it runs.
//
// It keeps what earlier events told: the block size, which groups of caches hold
// whole prompts, and under which salt blocks were stored. An event that cannot be
// used is skipped and counted; what was read of others stays.
//
// Decode and Reset must not be called concurrently; the other methods may be called at
// any time.
type Decoder struct {
	cfg         DecoderConfig
	blockSize   atomic.Int64
	provisional bool // blockSize was told by single blocks only
	mismatch    atomic.Int64
	eagle       atomic.Bool
	extraKeys   atomic.Bool
	skipped     [NumReasons]atomic.Uint64
	groups      map[uint64]bool // whether they hold whole prompts, as far as it is known
	main        uint64          // the lowest group that does
	hasMain     bool
	salted      namespaces

	// What one batch needs, kept for the next.
	ev          wireEvent
	events      []Event
	ends        []int // of the blocks of events
	blocks      []Block
	objects     []MMHash // of one block
	objectsLeft int      // that the event may still have
	sorted      []BlockID
}

// NewDecoder returns a decoder for one source.
func NewDecoder(cfg DecoderConfig) *Decoder {
	if cfg.MaxSalted == 0 {
		cfg.MaxSalted = defaultMaxSalted
	}
	d := &Decoder{cfg: cfg, salted: namespaces{limit: cfg.MaxSalted}}
	d.Reset()
	return d
}

// Reset forgets what events told, for an engine that was restarted. Counts stay.
func (d *Decoder) Reset() {
	d.blockSize.Store(int64(d.cfg.BlockSize))
	d.provisional = false
	d.mismatch.Store(0)
	d.eagle.Store(false)
	d.extraKeys.Store(false)
	d.groups, d.hasMain = nil, false
	d.salted.reset()
}

// BlockSize returns the configured block size, or the one learned, or 0 as long as
// none was told. It is learned from the first blocks stored on the device. A single
// block may be the smaller one that a prompt ended with, so that a size told by single
// blocks only gives way to a larger one, or to that of several blocks.
func (d *Decoder) BlockSize() int { return int(d.blockSize.Load()) }

// Mismatch returns the last block size in an event about the device that was skipped
// because it is not [Decoder.BlockSize], and 0 when there was none: another value means
// that the engine is not the one it was configured as, and that the index misses its
// blocks. Other tiers may keep blocks of other sizes; their events are only counted.
func (d *Decoder) Mismatch() int { return int(d.mismatch.Load()) }

// Eagle reports whether the engine speculates with EAGLE in a way that its blocks
// depend on the token after them, as SGLang's do: prompts are then to be hashed by
// [AppendEagleBlocks]. It is what the blocks that were last stored on the device told,
// and false before.
func (d *Decoder) Eagle() bool { return d.eagle.Load() }

// TellsExtraKeys reports whether the engine was seen to tell what besides tokens a
// block is made of: cache salts and objects such as images. As long as it is false,
// blocks of the same tokens cannot be told apart by either and are found by prompts
// with any; so it is with vLLM before 0.17. SGLang tells of salts since 0.5.18, and only
// where there is one, so that it is not seen before the first.
func (d *Decoder) TellsExtraKeys() bool { return d.extraKeys.Load() }

// SaltsForgotten returns how many salted blocks were forgotten because others took
// their place. Blocks stored after a forgotten one count as unsalted and match no
// prompt. A number that grows while prompts are extended calls for a larger MaxSalted.
func (d *Decoder) SaltsForgotten() uint64 { return d.salted.forgotten.Load() }

// Skipped returns how many events were left out, by reason.
func (d *Decoder) Skipped() (n [NumReasons]uint64) {
	for r := range n {
		n[r] = d.skipped[r].Load()
	}
	return n
}

// used is the end of an event that was not skipped.
const used Reason = NumReasons

// Decode reads the payload of one message, see [ParseMessage], as a batch with seq
// as Seq and Epoch 0. Events that are skipped are counted and leave the batch
// shorter, possibly empty. It returns an error only when the payload as a whole
// cannot be read. The caller owns the batch; neither it nor the decoder keeps anything
// of the payload.
func (d *Decoder) Decode(seq uint64, payload []byte) (*Batch, error) {
	defer d.release()
	src, err := d.decode(payload)
	if err != nil {
		return nil, fmt.Errorf("kv batch %d: %w", seq, err)
	}
	b := &Batch{Source: src, Seq: seq}
	if len(d.events) > 0 {
		b.Events = slices.Clone(d.events)
		blocks := slices.Clone(d.blocks)
		start := 0
		for i, end := range d.ends {
			if end > start {
				b.Events[i].Blocks = blocks[start:end:end]
			}
			start = end
		}
	}
	return b, nil
}

// decode leaves the events of a payload in d.
func (d *Decoder) decode(b []byte) (Source, error) {
	d.events, d.ends, d.blocks = d.events[:0], d.ends[:0], d.blocks[:0]
	src := d.cfg.Source
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return src, err
	}
	if n < 2 {
		return src, fmt.Errorf("expected time, events and rank, got %d elements", n)
	}
	if b, err = skipValue(b); err != nil {
		return src, fmt.Errorf("time: %w", err)
	}
	if b, err = d.decodeEvents(b); err != nil {
		return src, fmt.Errorf("events: %w", err)
	}
	for i := uint32(2); i < n; i++ {
		rest, err := skipValue(b)
		if err != nil {
			return src, fmt.Errorf("element %d: %w", i, err)
		}
		if i == 2 && !msgp.IsNil(b) {
			if rank, _, err := msgp.ReadUint64Bytes(b); err == nil && rank <= math.MaxUint32 {
				src.Rank = uint32(rank)
			} else {
				d.skipped[Malformed].Add(1)
			}
		}
		b = rest
	}
	return src, nil
}

func (d *Decoder) decodeEvents(b []byte) ([]byte, error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return b, err
	}
	for i := range n {
		rest, err := b, errTooLarge
		if len(d.events) < maxEvents && len(d.blocks) < maxBlocks {
			rest, err = d.ev.read(b)
		}
		var end Reason
		if err == nil {
			end = d.convert()
		} else {
			end = reasonOf(err)
			if rest, err = skipValue(b); err != nil {
				return b, fmt.Errorf("[%d]: %w", i, err)
			}
		}
		if end != used {
			d.skipped[end].Add(1)
		}
		b = rest
	}
	return b, nil
}

// release lets go of the payload, and of memory that an unusually large event took.
func (d *Decoder) release() {
	const keep = 1 << 16
	d.ev.reset()
	if cap(d.ev.tokens) > keep {
		d.ev.tokens = nil
	}
	if cap(d.ev.hashes) > keep/4 {
		d.ev.hashes, d.sorted = nil, nil
	}
	if cap(d.blocks) > keep/4 || cap(d.events) > keep/16 {
		d.blocks, d.events, d.ends = nil, nil, nil
	}
}

// convert appends the event that was read last.
func (d *Decoder) convert() Reason {
	ev := &d.ev
	switch ev.kind {
	case Stored, Removed:
	case Cleared:
		d.salted.reset()
		d.push(Event{Kind: Cleared})
		return used
	default:
		return IgnoredEvent
	}
	if r := d.attention(ev); r != used {
		return r
	}
	if len(ev.locality) > 0 && !isLocal(ev.locality) {
		return NonLocalLocality
	}
	tier, ok := ParseMedium(string(ev.medium))
	if !ok {
		return UnknownMedium
	}
	if !ev.with(mHashes) {
		return Malformed
	}
	if ev.kind == Removed {
		return d.removed(ev, tier)
	}
	return d.stored(ev, tier)
}

// attention decides by kind and group whether an event is about the cache that
// holds whole prompts. Models with several kinds of attention have one group of
// caches for each, and only events about blocks stored tell the kind.
//
// There may be several groups that hold whole prompts. They tell of the same blocks,
// each on its own, so that copies could not be counted if more than one were heard.
func (d *Decoder) attention(ev *wireEvent) Reason {
	end := used
	if ev.with(mKind) {
		end = attentionOf(ev.attention)
		if ev.kind == Stored && ev.with(mGroup) {
			d.learn(ev.group, end == used)
		}
	} else if ev.with(mGroup) {
		switch main, learned := d.groups[ev.group]; {
		case main, !learned && ev.group == 0 && !d.hasMain:
		case learned:
			return NonMainAttentionGroup
		default:
			return UnlearnedGroupIdx
		}
	}
	if end == used && ev.with(mGroup) && d.hasMain && ev.group != d.main {
		return OtherMainGroup
	}
	return end
}

// attentionOf decides by the kind of a cache.
func attentionOf(kind []byte) Reason {
	switch string(kind) {
	case "full_attention", "mla_attention", "sink_full_attention":
		return used
	case "sliding_window", "sliding_window_mla", "mamba", "chunked_local_attention",
		"encoder_only_attention", "cross_attention":
		return NonMainAttentionKind
	}
	return UnknownKind
}

// learn notes whether a group holds whole prompts. When another becomes the one to
// hear, what the one before told is taken back: nothing will tell when it is removed.
func (d *Decoder) learn(group uint64, main bool) {
	const most = 1024 // no engine has as many
	was, known := d.groups[group]
	if known && was == main || !known && len(d.groups) == most {
		return
	}
	if d.groups == nil {
		d.groups = make(map[uint64]bool)
	}
	d.groups[group] = main
	before, had := d.main, d.hasMain
	d.hasMain = false
	for g, main := range d.groups {
		if main && (!d.hasMain || g < d.main) {
			d.main, d.hasMain = g, true
		}
	}
	if had && (!d.hasMain || d.main != before) {
		d.push(Event{Kind: Cleared})
	}
}

func (d *Decoder) removed(ev *wireEvent, tier Tier) Reason {
	start, counted := len(d.blocks), d.cfg.Counted
	if !ev.with(mCopies) {
		for _, id := range ev.hashes {
			d.blocks = append(d.blocks, Block{ID: id})
		}
	} else {
		// The engine counts the copies itself.
		counted = false
		n, b, err := msgp.ReadArrayHeaderBytes(ev.copies)
		if err != nil || int64(n) != int64(len(ev.hashes)) {
			return Malformed
		}
		for _, id := range ev.hashes {
			var left uint64
			if left, b, err = msgp.ReadUint64Bytes(b); err != nil {
				d.blocks = d.blocks[:start]
				return Malformed
			}
			if left == 0 {
				d.blocks = append(d.blocks, Block{ID: id})
			}
		}
	}
	if len(d.blocks) > start {
		d.push(Event{Kind: Removed, Tier: tier, Counted: counted})
	}
	return used
}

func (d *Decoder) stored(ev *wireEvent, tier Tier) Reason {
	if !ev.with(mTokens) || !ev.with(mBlockSize) {
		return Malformed
	}
	if len(ev.hashes) == 0 {
		if len(ev.tokens) > 0 {
			return TokenCount
		}
		return used
	}
	if d.repeats(ev) {
		return SelfReference
	}
	if len(ev.tokens) == 0 && (ev.blockSize == 0 || tier != Device) {
		for _, id := range ev.hashes {
			d.blocks = append(d.blocks, Block{ID: id})
		}
		d.push(Event{Kind: Stored, Tier: tier, Counted: d.cfg.Counted, Bare: true})
		return used
	}
	if r := d.fit(ev, tier); r != used {
		return r
	}
	if ev.loraID != 0 && len(ev.lora) == 0 {
		return UnnamedAdapter
	}
	start := len(d.blocks)
	if r := d.hash(ev); r != used {
		d.blocks = d.blocks[:start]
		return r
	}
	if ev.tells || ev.with(mSalt) || ev.with(mMMInfos) {
		d.extraKeys.Store(true)
	}
	if tier == Device {
		d.eagle.Store(ev.pairs)
		d.learnSize(ev)
	}
	d.push(Event{
		Kind: Stored, Tier: tier, Counted: d.cfg.Counted,
		Parent: ev.parent, HasParent: ev.with(mParent),
	})
	return used
}

// repeats says whether an event names a block twice, its parent included.
func (d *Decoder) repeats(ev *wireEvent) bool {
	if len(ev.hashes) == 1 {
		return ev.with(mParent) && ev.parent == ev.hashes[0]
	}
	d.sorted = append(d.sorted[:0], ev.hashes...)
	if ev.with(mParent) {
		d.sorted = append(d.sorted, ev.parent)
	}
	slices.Sort(d.sorted)
	for i, id := range d.sorted[1:] {
		if id == d.sorted[i] {
			return true
		}
	}
	return false
}

// fit checks that the tokens of an event are those of its blocks.
func (d *Decoder) fit(ev *wireEvent, tier Tier) Reason {
	if ev.blockSize == 0 || ev.blockSize > maxTokens {
		return Malformed
	}
	size, want := int(ev.blockSize), d.BlockSize()
	replaces := tier == Device && d.provisional && (size > want || len(ev.hashes) > 1)
	if want != 0 && size != want && !replaces {
		if size < want && len(ev.hashes) == 1 {
			return PartialBlock
		}
		if tier == Device {
			d.mismatch.Store(int64(size))
		}
		return BlockSizeMismatch
	}
	spare := len(ev.tokens) - len(ev.hashes)*size
	if ev.pairs {
		spare--
	}
	if spare < 0 || spare >= size {
		return TokenCount
	}
	return used
}

// learnSize learns the block size from an event that fits.
func (d *Decoder) learnSize(ev *wireEvent) {
	if d.BlockSize() == 0 || d.provisional {
		d.blockSize.Store(int64(ev.blockSize))
		d.provisional = len(ev.hashes) == 1
	}
}

// push appends an event of the blocks appended since the last.
func (d *Decoder) push(ev Event) {
	d.events = append(d.events, ev)
	d.ends = append(d.ends, len(d.blocks))
}
