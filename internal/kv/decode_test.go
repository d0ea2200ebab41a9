package kv

import (
	"encoding/hex"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"
)

const (
	h1 BlockID = 0x1122334455667788
	h2 BlockID = 0xffeeddccbbaa9988
	p1 BlockID = 0xcf97adeedb59e05b // as SGLang names the pages of the same tokens
	p2 BlockID = 0xdb1eb80749f2a7a3
)

var (
	first  = []uint32{1, 2, 3, 4}
	second = []uint32{5, 6, 7, 1000}
	plain  = HashSeed("", "")
)

// Batches as engines send them, with the time 1700000000.5.
var payloads = []struct {
	name, hex string
	rank      uint32
	counted   bool
	want      []Event
}{
	{"E1 vLLM 0.9.0, two elements",
		"92cb41d954fc402000009196ab426c6f636b53746f72656492cf1122334455667788cfffeeddccbbaa9988c09801020304050607cd03e804c0",
		5, true, []Event{storedT(true)}},
	{"E2 vLLM 0.10.2, medium and rank",
		"93cb41d954fc402000009197ab426c6f636b53746f72656492cf1122334455667788cfffeeddccbbaa9988c09801020304050607cd03e804c0a347505500",
		0, true, []Event{storedT(true)}},
	{"E3 vLLM 0.22, twelve elements",
		"93cb41d954fc40200000919cab426c6f636b53746f72656491cfffeeddccbbaa9988cf112233445566778894050607cd03e804c0a3475055c091c000ae66756c6c5f617474656e74696f6ec001",
		1, true, []Event{{Kind: Stored, Counted: true, Parent: h1, HasParent: true, Blocks: []Block{{h2, HashTokens(plain, second)}}}}},
	{"E4 vLLM 0.24, a map",
		"93cb41d954fc40200000918ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cf1122334455667788cfffeeddccbbaa9988b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739801020304050607cd03e8aa626c6f636b5f73697a6504a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b65797392c0c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c5f617474656e74696f6e00",
		0, true, []Event{storedT(true)}},
	{"E5 removed, a map",
		"93cb41d954fc402000009184a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391cfffeeddccbbaa9988a66d656469756da3475055a967726f75705f6964780000",
		0, true, []Event{{Kind: Removed, Counted: true, Blocks: []Block{{ID: h2}}}}},
	{"E5a removed, an array",
		"93cb41d954fc402000009194ac426c6f636b52656d6f76656491cfffeeddccbbaa9988a34750550000",
		0, true, []Event{{Kind: Removed, Counted: true, Blocks: []Block{{ID: h2}}}}},
	{"E6 cleared, a map",
		"93cb41d954fc402000009181a474797065b0416c6c426c6f636b73436c656172656400",
		0, true, []Event{{Kind: Cleared}}},
	{"E6a cleared, an array",
		"93cb41d954fc402000009191b0416c6c426c6f636b73436c656172656400",
		0, true, []Event{{Kind: Cleared}}},
	{"E7 removed, hashes of bytes",
		"93cb41d954fc402000009184a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391c420000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1fa66d656469756da3475055a967726f75705f6964780000",
		0, true, []Event{{Kind: Removed, Counted: true, Blocks: []Block{{ID: 0x18191a1b1c1d1e1f}}}}},
	{"S1 SGLang stored",
		"93cb41d954fc402000009197ab426c6f636b53746f72656492d3cf97adeedb59e05bd3db1eb80749f2a7a3c09801020304050607cd03e804c0a347505500",
		0, false, []Event{{Kind: Stored, Blocks: []Block{{p1, HashTokens(plain, first)}, {p2, HashTokens(plain, second)}}}}},
	{"S3 SGLang removed",
		"93cb41d954fc402000009193ac426c6f636b52656d6f76656491d3db1eb80749f2a7a3a347505500",
		0, false, []Event{{Kind: Removed, Blocks: []Block{{ID: p2}}}}},
	{"S4 SGLang 0.5.18, salted",
		"93cb41d954fc402000009198ab426c6f636b53746f72656492cf339927f491605c4bcf488485f50714b4a1c09801020304050607cd03e804c0a347505581aa63616368655f73616c74a874656e616e742d6100",
		0, false, []Event{{Kind: Stored, Blocks: []Block{
			{3718046898735569995, HashTokens(HashSeed("", "tenant-a"), first)},
			{5225448755088897185, HashTokens(HashSeed("", "tenant-a"), second)}}}}},
	{"S5 SGLang, pairs of tokens",
		"93cb41d954fc402000009197ab426c6f636b53746f72656491d3853648b30722d555c092920a1492141e02c0a347505500",
		0, false, []Event{{Kind: Stored, Blocks: []Block{{0x853648b30722d555, HashTokens(plain, []uint32{10, 20, 30})}}}}},
	{"engine batch, -1 as a full int64",
		"93cb3ff80000000000009296ab426c6f636b53746f72656491d3ffffffffffffffffc0940102030404c092ac426c6f636b52656d6f766564912a00",
		0, false, []Event{
			{Kind: Stored, Blocks: []Block{{18446744073709551615, 14643705804678351452}}},
			{Kind: Removed, Blocks: []Block{{ID: 42}}}}},
	{"engine batch, -1 in short",
		"93cb3ff80000000000009296ab426c6f636b53746f72656491ffc0940102030404c092ac426c6f636b52656d6f766564912a00",
		0, false, []Event{
			{Kind: Stored, Blocks: []Block{{18446744073709551615, 14643705804678351452}}},
			{Kind: Removed, Blocks: []Block{{ID: 42}}}}},
	{"tolerance: E3 with one more element",
		"93cb41d954fc40200000919dab426c6f636b53746f72656491cfffeeddccbbaa9988cf112233445566778894050607cd03e804c0a3475055c091c000ae66756c6c5f617474656e74696f6ec0a666757475726501",
		1, true, []Event{{Kind: Stored, Counted: true, Parent: h1, HasParent: true, Blocks: []Block{{h2, HashTokens(plain, second)}}}}},
	{"tolerance: a batch with one more element",
		"94cb41d954fc402000009191b0416c6c426c6f636b73436c6561726564c0a36e6577",
		5, true, []Event{{Kind: Cleared}}},
}

func storedT(counted bool) Event {
	return Event{Kind: Stored, Counted: counted, Blocks: []Block{{h1, HashTokens(plain, first)}, {h2, HashTokens(plain, second)}}}
}

func TestDecodeVectors(t *testing.T) {
	for _, row := range payloads {
		t.Run(row.name, func(t *testing.T) {
			payload, err := hex.DecodeString(row.hex)
			if err != nil {
				t.Fatal(err)
			}
			d := NewDecoder(DecoderConfig{Source: Source{Worker: 7, Rank: 5}, Counted: row.counted})
			kept := slices.Clone(payload)
			got, err := d.Decode(9, payload)
			if err != nil {
				t.Fatal(err)
			}
			clear(payload)
			want := &Batch{Source: Source{Worker: 7, Rank: row.rank}, Seq: 9, Events: row.want}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := d.Skipped(); got != ([NumReasons]uint64{}) {
				t.Errorf("skipped %v", got)
			}
			for n := range kept {
				if b, err := d.Decode(9, kept[:n]); err == nil {
					t.Fatalf("the first %d of %d bytes are %+v", n, len(kept), b)
				}
			}
		})
	}
}

// payloadOf is a batch of events given as the values they are made of.
func payloadOf(t testing.TB, events ...any) []byte {
	t.Helper()
	b, err := msgp.AppendIntf(nil, []any{1700000000.5, events, nil})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// object is an event as a map.
type object = map[string]any

// stored is a map that tells of blocks of four tokens: those of first, then those of
// second, and so on.
func stored(more object, ids ...any) object {
	tokens := []any{}
	for _, v := range slices.Concat(first, second, first, second)[:4*len(ids)] {
		tokens = append(tokens, v)
	}
	ev := object{"type": "BlockStored", "block_hashes": ids, "parent_block_hash": nil, "token_ids": tokens, "block_size": 4}
	for k, v := range more {
		ev[k] = v
	}
	return ev
}

func removed(more object, ids ...any) object {
	ev := object{"type": "BlockRemoved", "block_hashes": ids}
	for k, v := range more {
		ev[k] = v
	}
	return ev
}

const mmKey = "0123456789abcdef00112233445566778899aabbccddeefffedcba9876543210"

func TestDecode(t *testing.T) {
	list := func(v ...any) []any { return v }
	blocks := func(seed uint64, ids ...BlockID) (list []Block) {
		for i, id := range ids {
			list = append(list, Block{id, HashTokens(seed, [][]uint32{first, second}[i%2])})
		}
		return list
	}
	mm := func(seed uint64, hashes ...MMHash) LocalHash {
		var objects []MMObject
		for _, h := range hashes {
			objects = append(objects, MMObject{Hash: h})
		}
		return HashTokensMM(seed, first, objects)
	}
	// array is an event of vLLM as an array, with extra keys of its one block. An
	// adapter among them is named.
	array := func(release string, id int, keys []any) []any {
		var lora any
		if keys[0] == "adapter-a" {
			lora = keys[0]
		}
		ev := list("BlockStored", list(id), nil, list(1, 2, 3, 4), 4, nil, "GPU", lora, list(keys))
		switch release {
		case "0.20":
			ev = append(ev, 0)
		case "0.22":
			ev = append(ev, 0, "full_attention", nil)
		}
		return ev
	}
	tenantA, tenantB := HashSeed("", "tenant-a"), HashSeed("", "tenant-b")
	rows := []struct {
		name    string
		cfg     DecoderConfig
		events  []any
		want    []Event
		skipped map[Reason]uint64
	}{
		{"tolerance: an unknown type between two others", DecoderConfig{},
			list(stored(nil, 1), object{"type": "Mystery", "depth": list(1, object{"a": nil})}, list("Mystery", 2, nil), removed(nil, 1)),
			[]Event{{Kind: Stored, Blocks: blocks(plain, 1)}, {Kind: Removed, Blocks: []Block{{ID: 1}}}},
			map[Reason]uint64{IgnoredEvent: 2}},
		{"tolerance: members that say for whom and on which tier, as vLLM 0.32 has them", DecoderConfig{},
			list(stored(object{"ownership": "tier-1", "session_id": "sess-1"}, 1), removed(object{"ownership": "tier-1"}, 1)),
			[]Event{{Kind: Stored, Blocks: blocks(plain, 1)}, {Kind: Removed, Blocks: []Block{{ID: 1}}}}, nil},
		{"bad events among good ones", DecoderConfig{},
			list(7, nil, list(), object{}, object{"type": 3}, object{"type": "BlockStored"}, object{"type": "BlockRemoved"},
				stored(object{"block_hashes": "x"}), stored(object{"token_ids": list(-1, 2, 3, 4)}, 1),
				stored(object{"token_ids": list(1<<32, 2, 3, 4)}, 1), stored(object{"block_size": -4}, 1),
				stored(object{"block_hashes": list([]byte("short"))}, 1), stored(object{"block_hashes": list(1.5)}, 1),
				stored(object{"extra_keys": 3}, 1), stored(object{"extra_keys": list(3)}, 1), stored(object{"medium": 3}, 1),
				stored(object{"token_ids": list(list(1, 2, 3))}, 1), list("BlockStored", list(1), nil), removed(nil, 1)),
			[]Event{{Kind: Removed, Blocks: []Block{{ID: 1}}}},
			map[Reason]uint64{Malformed: 18}},
		{"tiers", DecoderConfig{},
			list(removed(object{"medium": ""}, 1), removed(object{"medium": "CPU"}, 1), removed(object{"medium": "NVME"}, 1),
				removed(object{"medium": "SHARED"}, 1), removed(object{"medium": "FS"}, 1), stored(object{"medium": "OBJ"}, 1)),
			[]Event{{Kind: Removed, Blocks: []Block{{ID: 1}}}, {Kind: Removed, Tier: Host, Blocks: []Block{{ID: 1}}},
				{Kind: Removed, Tier: Disk, Blocks: []Block{{ID: 1}}}, {Kind: Removed, Tier: External, Blocks: []Block{{ID: 1}}}},
			map[Reason]uint64{UnknownMedium: 2}},
		{"locality", DecoderConfig{},
			list(removed(object{"locality": "LOCAL"}, 1), removed(object{"locality": "REMOTE"}, 2), removed(object{"locality": nil}, 3)),
			[]Event{{Kind: Removed, Blocks: []Block{{ID: 1}}}, {Kind: Removed, Blocks: []Block{{ID: 3}}}},
			map[Reason]uint64{NonLocalLocality: 1}},
		{"locality and kind at the end of arrays", DecoderConfig{},
			list(
				list("BlockStored", list(1), nil, list(1, 2, 3, 4), 4, nil, "GPU", nil, nil, 0, "full_attention", nil, "REMOTE"),
				list("BlockStored", list(2), nil, list(1, 2, 3, 4), 4, nil, "GPU", nil, nil, 0, "full_attention", nil, "LOCAL", nil),
				list("BlockStored", list(3), nil, list(1, 2, 3, 4), 4, nil, "GPU", nil, nil, 0, "full_attention", nil, 7),
				list("BlockRemoved", list(1), "GPU", 0, "full_attention", nil, "REMOTE"),
				list("BlockRemoved", list(2), "GPU", 0, "full_attention", nil, "local"),
				list("BlockRemoved", list(2), "GPU", 0, "mamba"),
				list("BlockRemoved", list(2), "GPU", 0, nil, nil, nil),
				list("BlockRemoved", list(3), "GPU", 0, "future", 3, "future"),
				list("BlockRemoved", list(3), "GPU", list(0))), // no group
			[]Event{{Kind: Stored, Blocks: blocks(plain, 2)}, {Kind: Stored, Blocks: blocks(plain, 3)},
				{Kind: Removed, Blocks: []Block{{ID: 2}}}, {Kind: Removed, Blocks: []Block{{ID: 2}}}, {Kind: Removed, Blocks: []Block{{ID: 3}}}},
			map[Reason]uint64{NonLocalLocality: 2, NonMainAttentionKind: 1, Malformed: 1}},
		{"the type comes first, wherever it is", DecoderConfig{},
			list(
				object{"type": "AllBlocksCleared", "medium": 3, "block_hashes": "x", "group_idx": -1},
				list("AllBlocksCleared", list("x"), object{}),
				object{"type": "BlockMoved", "block_hashes": object{"from": 1}, "medium": 3},
				list("BlockMoved", 3, 3)),
			[]Event{{Kind: Cleared}, {Kind: Cleared}},
			map[Reason]uint64{IgnoredEvent: 2}},
		{"groups are learned from what is stored", DecoderConfig{},
			list(
				removed(object{"group_idx": 0}, 1), // not learned: only the first group
				removed(object{"group_idx": 2}, 2),
				removed(object{"group_idx": 2, "kv_cache_spec_kind": "full_attention"}, 3), // does not teach
				removed(object{"group_idx": 2}, 4),
				stored(object{"group_idx": 2, "kv_cache_spec_kind": "mla_attention"}, 5),
				removed(object{"group_idx": 2}, 5),
				stored(object{"group_idx": 0, "kv_cache_spec_kind": "sliding_window"}, 6),
				removed(object{"group_idx": 0}, 6),
				stored(object{"group_idx": 3, "kv_cache_spec_kind": "quantum"}, 7),
				stored(object{"group_idx": 3}, 7),
				stored(object{"kv_cache_spec_kind": "sink_full_attention"}, 8)),
			[]Event{{Kind: Removed, Blocks: []Block{{ID: 1}}}, {Kind: Removed, Blocks: []Block{{ID: 3}}},
				{Kind: Stored, Blocks: blocks(plain, 5)}, {Kind: Removed, Blocks: []Block{{ID: 5}}}, {Kind: Stored, Blocks: blocks(plain, 8)}},
			map[Reason]uint64{UnlearnedGroupIdx: 2, NonMainAttentionKind: 1, NonMainAttentionGroup: 2, UnknownKind: 1}},
		{"the lowest of several groups that hold whole prompts", DecoderConfig{Counted: true},
			list(
				stored(object{"group_idx": 1, "kv_cache_spec_kind": "full_attention"}, 1),
				stored(object{"group_idx": 2, "kv_cache_spec_kind": "mla_attention"}, 1),
				removed(object{"group_idx": 2}, 1),
				removed(object{"group_idx": 0}, 1), // of a kind that was not told
				removed(object{"group_idx": 0, "kv_cache_spec_kind": "full_attention"}, 1),
				removed(object{"group_idx": 1}, 1),
				stored(object{"group_idx": 0, "kv_cache_spec_kind": "full_attention"}, 2), // counts from now on
				stored(object{"group_idx": 1, "kv_cache_spec_kind": "full_attention"}, 2),
				removed(object{"group_idx": 1}, 2),
				removed(object{"group_idx": 0}, 2),
				removed(nil, 3)),
			[]Event{{Kind: Stored, Counted: true, Blocks: blocks(plain, 1)}, {Kind: Removed, Counted: true, Blocks: []Block{{ID: 1}}},
				{Kind: Cleared}, {Kind: Stored, Counted: true, Blocks: blocks(plain, 2)}, {Kind: Removed, Counted: true, Blocks: []Block{{ID: 2}}},
				{Kind: Removed, Counted: true, Blocks: []Block{{ID: 3}}}},
			map[Reason]uint64{OtherMainGroup: 5, UnlearnedGroupIdx: 1}},
		{"placeholders of offloaded blocks", DecoderConfig{Counted: true},
			list(stored(object{"block_size": 0, "token_ids": list(), "medium": "CPU"}, 1, 2),
				stored(object{"block_size": 0, "token_ids": nil, "medium": "CPU"}, 3),
				stored(object{"token_ids": list(), "medium": "DISK"}, 4),
				stored(object{"token_ids": list()}, 5)),
			[]Event{{Kind: Stored, Tier: Host, Counted: true, Bare: true, Blocks: []Block{{ID: 1}, {ID: 2}}},
				{Kind: Stored, Tier: Host, Counted: true, Bare: true, Blocks: []Block{{ID: 3}}},
				{Kind: Stored, Tier: Disk, Counted: true, Bare: true, Blocks: []Block{{ID: 4}}}},
			map[Reason]uint64{TokenCount: 1}},
		{"block size configured", DecoderConfig{BlockSize: 8},
			list(stored(nil, 1), stored(nil, 1, 2), stored(object{"block_size": 16}, 1, 2, 3, 4),
				stored(object{"block_size": 8, "block_hashes": list(1, 2)}, 1, 2, 3, 4)),
			[]Event{{Kind: Stored, Blocks: []Block{
				{1, HashTokens(plain, slices.Concat(first, second))}, {2, HashTokens(plain, slices.Concat(first, second))}}}},
			map[Reason]uint64{PartialBlock: 1, BlockSizeMismatch: 2}},
		{"tokens that are not those of the blocks", DecoderConfig{},
			list(stored(object{"block_hashes": list(1, 2, 3)}, 1, 2), stored(object{"block_hashes": list(1)}, 1, 2),
				stored(object{"token_ids": list(1, 2, 3, 4, 5, 6)}, 1), // one block and the beginning of another
				stored(object{"token_ids": list(list(1, 2), list(2, 3), list(3, 4))}, 1)),
			[]Event{{Kind: Stored, Blocks: blocks(plain, 1)}},
			map[Reason]uint64{TokenCount: 3}},
		{"no blocks at all", DecoderConfig{}, list(stored(nil), removed(nil), stored(object{"token_ids": list(1, 2, 3, 4)})), nil,
			map[Reason]uint64{TokenCount: 1}},
		{"pairs of neighbours", DecoderConfig{},
			list(stored(object{"block_size": 2, "token_ids": list(list(10, 20), list(20, 30), list(30, 40), list(40, 50))}, 1, 2),
				stored(object{"block_size": 2, "token_ids": list(list(10, 20), list(21, 30))}, 1),
				stored(object{"block_size": 2, "token_ids": list(list(10, 20), 20)}, 1)),
			[]Event{{Kind: Stored, Blocks: []Block{{1, HashTokens(plain, []uint32{10, 20, 30})}, {2, HashTokens(plain, []uint32{30, 40, 50})}}}},
			map[Reason]uint64{Malformed: 2}},
		{"self reference", DecoderConfig{},
			list(stored(nil, 1, 2, 1), stored(object{"parent_block_hash": 2}, 1, 2), stored(object{"parent_block_hash": 1}, 1), removed(nil, 3, 3)),
			[]Event{{Kind: Removed, Blocks: []Block{{ID: 3}, {ID: 3}}}},
			map[Reason]uint64{SelfReference: 3}},
		{"remaining copies", DecoderConfig{Counted: true},
			list(removed(object{"remaining_copy_counts": list(0, 1, 0)}, 1, 2, 3), removed(object{"remaining_copy_counts": list(1)}, 1),
				removed(object{"remaining_copy_counts": list(0)}, 1, 2), removed(object{"remaining_copy_counts": list(0, "x")}, 1, 2),
				removed(object{"remaining_copy_counts": nil}, 4)),
			[]Event{{Kind: Removed, Blocks: []Block{{ID: 1}, {ID: 3}}}, {Kind: Removed, Counted: true, Blocks: []Block{{ID: 4}}}},
			map[Reason]uint64{Malformed: 2}},
		{"adapters", DecoderConfig{},
			list(stored(object{"lora_id": 3, "lora_name": "adapter-a"}, 1), stored(object{"lora_id": 3}, 2), stored(object{"lora_id": 0}, 3),
				list("BlockStored", list(4), nil, list(1, 2, 3, 4), 4, 1, "GPU", "adapter-a", list(list("adapter-a")))),
			[]Event{{Kind: Stored, Blocks: blocks(HashSeed("adapter-a", ""), 1)}, {Kind: Stored, Blocks: blocks(plain, 3)},
				{Kind: Stored, Blocks: blocks(HashSeed("adapter-a", ""), 4)}},
			map[Reason]uint64{UnnamedAdapter: 1}},
		{"salts are inherited", DecoderConfig{},
			list(
				stored(object{"extra_keys": list(list("dynamo-cache-salt:tenant-a"), nil)}, 1, 2),
				stored(object{"parent_block_hash": 2}, 3),
				stored(object{"parent_block_hash": 3, "lora_name": "adapter-a"}, 4),
				stored(object{"parent_block_hash": 99}, 5), // of which nothing is known
				stored(object{"extra_keys": list(list("adapter-a", "tenant-b")), "lora_name": "adapter-a"}, 6),
				stored(object{"cache_salt": "tenant-b"}, 7),
				stored(object{"cache_salt": ""}, 8),
				list("BlockStored", list(9), 7, list(1, 2, 3, 4), 4, nil, "GPU"),
				list("BlockStored", list(10), 9, list(1, 2, 3, 4), 4, nil, "GPU", object{"cache_salt": "tenant-b", "x": 1}),
				stored(object{"extra_keys": list(list("adapter-a", "adapter-a")), "lora_name": "adapter-a"}, 11)),
			[]Event{
				{Kind: Stored, Blocks: blocks(tenantA, 1, 2)},
				{Kind: Stored, Parent: 2, HasParent: true, Blocks: blocks(tenantA, 3)},
				{Kind: Stored, Parent: 3, HasParent: true, Blocks: blocks(HashSeed("adapter-a", "tenant-a"), 4)},
				{Kind: Stored, Parent: 99, HasParent: true, Blocks: blocks(plain, 5)},
				{Kind: Stored, Blocks: blocks(HashSeed("adapter-a", "tenant-b"), 6)},
				{Kind: Stored, Blocks: blocks(tenantB, 7)},
				{Kind: Stored, Blocks: blocks(plain, 8)},
				{Kind: Stored, Parent: 7, HasParent: true, Blocks: blocks(tenantB, 9)},
				{Kind: Stored, Parent: 9, HasParent: true, Blocks: blocks(tenantB, 10)},
				{Kind: Stored, Blocks: blocks(HashSeed("adapter-a", "adapter-a"), 11)},
			}, nil},
		{"salts contradict each other", DecoderConfig{},
			list(
				stored(object{"cache_salt": "tenant-a"}, 1),
				stored(object{"cache_salt": "tenant-b"}, 1),
				stored(object{"parent_block_hash": 1}, 2),
				stored(object{"parent_block_hash": 1, "cache_salt": "tenant-a"}, 3),
				stored(object{"cache_salt": "tenant-a"}, 4),
				stored(nil, 4),
				stored(object{"parent_block_hash": 4}, 5)),
			[]Event{
				{Kind: Stored, Blocks: blocks(tenantA, 1)},
				{Kind: Stored, Blocks: blocks(tenantB, 1)},
				{Kind: Stored, Parent: 1, HasParent: true, Blocks: blocks(tenantA, 3)},
				{Kind: Stored, Blocks: blocks(tenantA, 4)},
				{Kind: Stored, Blocks: blocks(plain, 4)},
			}, map[Reason]uint64{AmbiguousCacheNamespace: 2}},
		{"salts are forgotten when the cache is cleared", DecoderConfig{},
			list(stored(object{"cache_salt": "tenant-a"}, 1), object{"type": "AllBlocksCleared"}, stored(object{"parent_block_hash": 1}, 2)),
			[]Event{{Kind: Stored, Blocks: blocks(tenantA, 1)}, {Kind: Cleared},
				{Kind: Stored, Parent: 1, HasParent: true, Blocks: blocks(plain, 2)}}, nil},
		{"no more salts are remembered than allowed", DecoderConfig{MaxSalted: 4},
			list(stored(object{"cache_salt": "tenant-a"}, 1, 2, 3, 4), stored(object{"cache_salt": "tenant-a"}, 5, 6),
				stored(object{"parent_block_hash": 6}, 7), stored(object{"parent_block_hash": 1}, 8)),
			[]Event{{Kind: Stored, Blocks: blocks(tenantA, 1, 2, 3, 4)}, {Kind: Stored, Blocks: blocks(tenantA, 5, 6)},
				{Kind: Stored, Parent: 6, HasParent: true, Blocks: blocks(tenantA, 7)},
				{Kind: Stored, Parent: 1, HasParent: true, Blocks: blocks(plain, 8)}}, nil},
		{"objects", DecoderConfig{},
			list(
				array("0.18", 1, list(mmKey)),
				stored(object{"extra_keys": list(list(list(mmKey, 2), list(mmKey, 3)))}, 2), // the same twice
				stored(object{"extra_keys": list(list("adapter-a", list(mmKey, 0), "dynamo-cache-salt:tenant-a")), "lora_name": "adapter-a"}, 3),
				stored(object{"extra_keys": list(list("dynamo-cache-salt:" + mmKey))}, 4),
				stored(object{"block_mm_infos": list(object{"mm_objects": list(object{"mm_hash": 9, "offsets": list()}, object{"mm_hash": 8})}, nil), "extra_keys": list(list(list(mmKey, 0)))}, 5),
				list("BlockStored", list(6), nil, list(1, 2, 3, 4), 4, nil, "GPU", nil, nil, list(list(list(list(7))))),
				stored(object{"block_mm_infos": list(object{"mm_objects": list(object{"mm_hash": 9}, object{"mm_hash": 8}, object{"mm_hash": 9})})}, 7),
				array("0.18", 8, list(list("photo.png", 0))),
				array("0.22", 9, list(list("photo.png", 0)))),
			[]Event{
				{Kind: Stored, Blocks: []Block{{1, mm(plain, 0x0123456789abcdef)}}},
				{Kind: Stored, Blocks: []Block{{2, mm(plain, 0x0123456789abcdef)}}},
				{Kind: Stored, Blocks: []Block{{3, mm(HashSeed("adapter-a", "tenant-a"), 0x0123456789abcdef)}}},
				{Kind: Stored, Blocks: []Block{{4, mm(HashSeed("", mmKey))}}},
				{Kind: Stored, Blocks: []Block{{5, mm(plain, 8, 9)}}},
				{Kind: Stored, Blocks: []Block{{6, mm(plain, 7)}}},
				{Kind: Stored, Blocks: []Block{{7, mm(plain, 8, 9, 9)}}},
				{Kind: Stored, Blocks: []Block{{8, mm(plain, IdentifierHash("photo.png"))}}},
				{Kind: Stored, Blocks: []Block{{9, mm(plain, IdentifierHash("photo.png"))}}},
			}, nil},
		{"strings that look like objects", DecoderConfig{},
			list(
				stored(object{"extra_keys": list(list(mmKey))}, 1), // a salt, for objects are pairs
				array("0.20", 2, list(mmKey)),
				array("0.22", 3, list("adapter-a", list(mmKey, 0), mmKey)),
				array("0.18", 4, list(mmKey, "tenant-a")),
				array("0.18", 5, list("tenant-a")),
				array("0.18", 6, list("photo.png", mmKey, saltTag+"tenant-a")),
				stored(object{"extra_keys": list(list(mmKey)), "parent_block_hash": 5}, 7)), // not the first block
			[]Event{
				{Kind: Stored, Blocks: blocks(HashSeed("", mmKey), 1)},
				{Kind: Stored, Blocks: blocks(HashSeed("", mmKey), 2)},
				{Kind: Stored, Blocks: []Block{{3, mm(HashSeed("adapter-a", mmKey), 0x0123456789abcdef)}}},
				{Kind: Stored, Blocks: []Block{{4, mm(tenantA, 0x0123456789abcdef)}}},
				{Kind: Stored, Blocks: blocks(tenantA, 5)},
				{Kind: Stored, Blocks: []Block{{6, mm(tenantA, 0x0123456789abcdef, IdentifierHash("photo.png"))}}},
				{Kind: Stored, Parent: 5, HasParent: true, Blocks: []Block{{7, mm(tenantA, 0x0123456789abcdef)}}},
			}, nil},
		{"the size of single blocks gives way", DecoderConfig{},
			list(
				stored(object{"block_size": 2, "token_ids": list(1, 2), "medium": "CPU"}, 1), // teaches nothing
				stored(object{"block_size": 2, "token_ids": list(1, 2)}, 2),
				stored(object{"block_size": 1, "token_ids": list(1)}, 3),
				stored(nil, 4), // larger
				stored(object{"block_size": 2, "token_ids": list(1, 2)}, 5),
				stored(object{"block_size": 2, "token_ids": list(1, 2, 3, 4)}, 6, 7), // several
				stored(nil, 8)),
			[]Event{
				{Kind: Stored, Tier: Host, Blocks: []Block{{1, HashTokens(plain, first[:2])}}},
				{Kind: Stored, Blocks: []Block{{2, HashTokens(plain, first[:2])}}},
				{Kind: Stored, Blocks: blocks(plain, 4)},
				{Kind: Stored, Blocks: []Block{{6, HashTokens(plain, first[:2])}, {7, HashTokens(plain, first[2:])}}},
			}, map[Reason]uint64{PartialBlock: 2, BlockSizeMismatch: 1}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			row.cfg.Source = Source{Worker: 7}
			d := NewDecoder(row.cfg)
			got, err := d.Decode(1, payloadOf(t, row.events...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got.Events); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var skipped map[Reason]uint64
			for r, n := range d.Skipped() {
				if n > 0 {
					if skipped == nil {
						skipped = make(map[Reason]uint64)
					}
					skipped[Reason(r)] = n
				}
			}
			if diff := cmp.Diff(row.skipped, skipped); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
		})
	}
}
