package kv

import (
	"bytes"
	"encoding/hex"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/tinylib/msgp/msgp"
)

// Blocks that an engine tells apart by more than their tokens have other hashes.
func TestDecodeExtraKeysSeparate(t *testing.T) {
	d := NewDecoder(DecoderConfig{Source: Source{Worker: 7}})
	keys := []any{
		nil, []any{mmKey}, []any{"salt"}, []any{"other salt"}, []any{[]any{"photo.png", 0}}, []any{[]any{"other.png", 0}},
		[]any{[]byte("embedding")}, []any{"photo.png", "salt"}, []any{"photo.png", saltTag + "salt"},
	}
	seen := make(map[LocalHash]int)
	for i, key := range keys {
		b, err := d.Decode(0, payloadOf(t, stored(object{"extra_keys": []any{key}}, i)))
		if err != nil || len(b.Events) != 1 {
			t.Fatalf("keys %v: %v, %v", key, b, err)
		}
		h := b.Events[0].Blocks[0].Tokens
		// The salt counts the same with and without its tag.
		if j, ok := seen[h]; ok && j != len(keys)-2 {
			t.Errorf("keys %v and %v give the same hash", keys[j], key)
		}
		seen[h] = i
	}
	if len(seen) != len(keys)-1 {
		t.Errorf("%d hashes for %d keys", len(seen), len(keys))
	}
}

func TestDecoderState(t *testing.T) {
	d := NewDecoder(DecoderConfig{Source: Source{Worker: 7}})
	decode := func(events ...any) int {
		t.Helper()
		b, err := d.Decode(0, payloadOf(t, events...))
		if err != nil {
			t.Fatal(err)
		}
		return len(b.Events)
	}
	check := func(size, mismatch int) {
		t.Helper()
		if d.BlockSize() != size || d.Mismatch() != mismatch {
			t.Errorf("block size %d, mismatch %d; want %d and %d", d.BlockSize(), d.Mismatch(), size, mismatch)
		}
	}
	check(0, 0)
	decode(stored(object{"block_size": 8, "kv_cache_spec_kind": "mamba"}, 1, 2), stored(object{"block_size": 5}, 1, 2))
	check(0, 0) // neither is to be learned from
	decode(stored(object{"medium": "CPU"}, 1, 2), stored(object{"lora_id": 3}, 1, 2), stored(object{"extra_keys": []any{3}}, 1, 2))
	check(0, 0) // another tier, and two that were skipped
	decode(stored(object{"group_idx": 1, "kv_cache_spec_kind": "full_attention"}, 1, 2))
	check(4, 0)
	decode(stored(object{"block_size": 8, "medium": "CPU"}, 1, 2))
	check(4, 0) // other tiers raise no alarm
	decode(stored(object{"block_size": 8}, 1, 2))
	check(4, 8)
	if n := decode(removed(object{"group_idx": 1}, 1)); n != 1 {
		t.Error("a learned group is not remembered by the next batch")
	}
	d.Reset()
	check(0, 0)
	if n := decode(removed(object{"group_idx": 1}, 1)); n != 0 {
		t.Error("a learned group outlives a restart")
	}
	if got := d.Skipped()[BlockSizeMismatch]; got != 2 {
		t.Errorf("%d mismatches counted after a restart, want 2", got)
	}
	d = NewDecoder(DecoderConfig{BlockSize: 16})
	d.Reset()
	check(16, 0)
}

func TestDecodeTooLarge(t *testing.T) {
	many := func(n int) []any { return slices.Repeat([]any{1}, n) }
	d := NewDecoder(DecoderConfig{Source: Source{Worker: 7}})
	b, err := d.Decode(0, payloadOf(t, removed(nil, many(maxHashes+1)...), stored(object{"token_ids": many(maxTokens + 1)}, 1), removed(nil, many(maxHashes)...)))
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Events) != 1 || len(b.Events[0].Blocks) != maxHashes || d.Skipped()[TooLarge] != 2 {
		t.Errorf("%d events, skipped %v", len(b.Events), d.Skipped())
	}
}

// What is stored costs an engine some bytes, and us not many more.
func TestDecodeAmplification(t *testing.T) {
	empty := func(n int) []any { return slices.Repeat([]any{""}, n) }
	infos := func(n int) []any {
		return []any{object{"mm_objects": slices.Repeat([]any{object{"mm_hash": 1}}, n)}}
	}
	many := func(perBlock int) object {
		return object{"extra_keys": slices.Repeat([]any{slices.Repeat([]any{[]byte("x")}, perBlock)}, 128)}
	}
	ids := make([]any, 128)
	for i := range ids {
		ids[i] = i
	}
	wide := func(keys object) object {
		ev := stored(keys)
		ev["block_hashes"], ev["block_size"], ev["token_ids"] = ids, 1, slices.Repeat([]any{1}, len(ids))
		return ev
	}
	single := func(more object) object {
		return stored(more, 1)
	}
	rows := []struct {
		name  string
		event object
		used  int
	}{
		{"keys of a block", single(object{"extra_keys": []any{empty(maxBlockObjects + 1)}}), 1}, // one is the salt
		{"too many keys of a block", single(object{"extra_keys": []any{empty(maxBlockObjects + 2)}}), 0},
		{"a great many keys of a block", single(object{"extra_keys": []any{empty(4 << 20)}}), 0},
		{"objects of a block", single(object{"block_mm_infos": infos(maxBlockObjects)}), 1},
		{"too many objects of a block", single(object{"block_mm_infos": infos(maxBlockObjects + 1)}), 0},
		{"keys of an event", wide(many(maxObjects / 128)), 1},
		{"too many keys of an event", wide(many(maxObjects/128 + 1)), 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			d := NewDecoder(DecoderConfig{Source: Source{Worker: 7}})
			payload := payloadOf(t, row.event)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b, err := d.Decode(0, payload)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			if len(b.Events) != row.used || d.Skipped()[TooLarge] != uint64(1-row.used) {
				t.Errorf("%d events, skipped %v", len(b.Events), d.Skipped())
			}
			if got, most := after.TotalAlloc-before.TotalAlloc, uint64(4*len(payload)+1<<18); got > most {
				t.Errorf("%d bytes allocated for %d, want at most %d", got, len(payload), most)
			}
		})
	}
}

// A batch has no more events and blocks than it may; the rest is counted.
func TestDecodeLargeBatch(t *testing.T) {
	batch := func(event any, n int) []byte {
		one, err := msgp.AppendIntf(nil, event)
		if err != nil {
			t.Fatal(err)
		}
		b := msgp.AppendNil(msgp.AppendArrayHeader(nil, 2))
		return append(msgp.AppendArrayHeader(b, uint32(n)), bytes.Repeat(one, n)...)
	}
	wide := removed(nil, slices.Repeat([]any{1}, maxHashes)...)
	for _, row := range []struct {
		name         string
		payload      []byte
		used, events int
	}{
		{"events", batch([]any{"AllBlocksCleared"}, maxEvents+3), maxEvents, 3},
		{"blocks", batch(wide, maxBlocks/maxHashes+2), maxBlocks / maxHashes, 2},
		{"events of no use", batch(7, maxEvents+3), 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := NewDecoder(DecoderConfig{Source: Source{Worker: 7}})
			b, err := d.Decode(0, row.payload)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.Skipped()[TooLarge]; len(b.Events) != row.used || got != uint64(row.events) {
				t.Errorf("%d events used and %d too many, want %d and %d", len(b.Events), got, row.used, row.events)
			}
			if cap(d.events) > 1<<12 || cap(d.blocks) > 1<<14 {
				t.Errorf("room for %d events and %d blocks is kept", cap(d.events), cap(d.blocks))
			}
		})
	}
}

// A rank that is none is counted and costs nothing else.
func TestDecodeBadRank(t *testing.T) {
	for _, rank := range []any{-1, "x", 1.5, 1 << 32, []any{0}, true} {
		payload, err := msgp.AppendIntf(nil, []any{1.5, []any{removed(nil, 1)}, rank, "more"})
		if err != nil {
			t.Fatal(err)
		}
		d := NewDecoder(DecoderConfig{Source: Source{Worker: 7, Rank: 5}})
		b, err := d.Decode(3, payload)
		if err != nil {
			t.Errorf("rank %v: %v", rank, err)
			continue
		}
		if b.Source != (Source{Worker: 7, Rank: 5}) || len(b.Events) != 1 || d.Skipped()[Malformed] != 1 {
			t.Errorf("rank %v: %+v, skipped %v", rank, b, d.Skipped())
		}
	}
}

// What nobody asked for may be as deep as it likes.
func TestDecodeDeep(t *testing.T) {
	const depth = 1 << 20
	deep := append(bytes.Repeat([]byte{0x91}, depth), 0xc0)
	b := msgp.AppendNil(msgp.AppendArrayHeader(nil, 2))
	b = msgp.AppendArrayHeader(b, 3)
	b = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(b, 2), "type"), "Mystery")
	b = append(msgp.AppendString(b, "x"), deep...)
	b = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(b, 3), "type"), "BlockRemoved")
	b = append(msgp.AppendString(b, "medium"), deep...)
	b = msgp.AppendUint64(msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), 1), 1)
	b = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(b, 3), "type"), "BlockRemoved")
	b = append(msgp.AppendString(b, "x"), deep...)
	b = msgp.AppendUint64(msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), 1), 1)
	d := NewDecoder(DecoderConfig{Source: Source{Worker: 7}})
	got, err := d.Decode(0, b)
	if err != nil {
		t.Fatal(err)
	}
	if n := d.Skipped(); len(got.Events) != 1 || n[IgnoredEvent] != 1 || n[Malformed] != 1 {
		t.Errorf("%d events, skipped %v", len(got.Events), n)
	}
}

func TestDecoderLearns(t *testing.T) {
	list := func(v ...any) []any { return v }
	pairs := object{"token_ids": list(list(1, 2), list(2, 3), list(3, 4), list(4, 5))}
	for _, row := range []struct {
		name        string
		event       any
		eagle, keys bool
	}{
		{"vLLM 0.14", list("BlockStored", list(1), nil, list(1, 2, 3, 4), 4, nil, "GPU", nil), false, false},
		{"vLLM 0.17", list("BlockStored", list(1), nil, list(1, 2, 3, 4), 4, nil, "GPU", nil, nil), false, true},
		{"vLLM 0.24", stored(nil, 1), false, true},
		{"SGLang", list("BlockStored", list(1), nil, list(1, 2, 3, 4), 4, nil, "GPU"), false, false},
		{"SGLang with a salt", list("BlockStored", list(1), nil, list(1, 2, 3, 4), 4, nil, "GPU", object{"cache_salt": "a"}), false, true},
		{"SGLang with EAGLE", list("BlockStored", list(1), nil, pairs["token_ids"], 4, nil, "GPU"), true, false},
		{"another tier", stored(object{"token_ids": pairs["token_ids"], "medium": "CPU"}, 1), false, true},
		{"skipped", stored(object{"token_ids": pairs["token_ids"], "lora_id": 3}, 1), false, false},
		{"removed", removed(nil, 1), false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := NewDecoder(DecoderConfig{})
			if _, err := d.Decode(0, payloadOf(t, row.event)); err != nil {
				t.Fatal(err)
			}
			if d.Eagle() != row.eagle || d.TellsExtraKeys() != row.keys {
				t.Errorf("EAGLE %v, extra keys %v; want %v and %v", d.Eagle(), d.TellsExtraKeys(), row.eagle, row.keys)
			}
			d.Reset()
			if d.Eagle() || d.TellsExtraKeys() {
				t.Error("it outlives a restart")
			}
		})
	}
}

func TestSaltsForgotten(t *testing.T) {
	d := NewDecoder(DecoderConfig{MaxSalted: 4})
	decode := func(want uint64, events ...any) {
		t.Helper()
		if _, err := d.Decode(0, payloadOf(t, events...)); err != nil {
			t.Fatal(err)
		}
		if got := d.SaltsForgotten(); got != want {
			t.Errorf("%d forgotten, want %d", got, want)
		}
	}
	salt := object{"cache_salt": "tenant-a"}
	decode(0, stored(salt, 1, 2), stored(nil, 10, 11, 12, 13))
	decode(1, stored(object{"parent_block_hash": 1}, 3)) // 1 is named again and outlives 2
	decode(3, stored(salt, 4, 5))
	decode(3, object{"type": "AllBlocksCleared"})
	decode(3, stored(salt, 6, 7))
}

// The decoder does not keep the payload, read or not.
func TestDecoderKeepsNoPayload(t *testing.T) {
	d := NewDecoder(DecoderConfig{Source: Source{Worker: 7}})
	decode := func(cut int) weak.Pointer[byte] {
		payload := payloadOf(t, stored(object{
			"lora_name": "adapter-a", "medium": "GPU", "locality": "LOCAL", "cache_salt": "tenant-a",
			"kv_cache_spec_kind": "full_attention", "extra_keys": []any{[]any{[]byte("x")}}}, 1))
		payload = append(make([]byte, 0, 1<<12), payload...)
		if _, err := d.Decode(0, payload[:len(payload)-cut]); (err != nil) != (cut > 0) {
			t.Fatalf("without %d bytes: %v", cut, err)
		}
		return weak.Make(&payload[0])
	}
	for cut := range 2 {
		payload := decode(cut)
		runtime.GC()
		if payload.Value() != nil {
			t.Errorf("without %d bytes: the payload is still there", cut)
		}
	}
	runtime.KeepAlive(d)
}

func TestDecodeErrors(t *testing.T) {
	rows := []struct {
		name  string
		value any
		want  string
	}{
		{"a map", object{"events": 1}, "kv batch 3: "},
		{"one element", []any{1.5}, "got 1 elements"},
		{"events that are no array", []any{1.5, "x", 0}, "events: "},
	}
	for _, row := range rows {
		payload, err := msgp.AppendIntf(nil, row.value)
		if err != nil {
			t.Fatal(err)
		}
		_, err = NewDecoder(DecoderConfig{}).Decode(3, payload)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got error %v, want one with %q", row.name, err, row.want)
		}
	}
	// A length that is not there is not allocated.
	for _, raw := range []string{"92c0ddffffffff91", "92c09192ac426c6f636b52656d6f766564dd0000ffff01", "92c09195ab426c6f636b53746f7265649101c0dd000fffff0104"} {
		payload, _ := hex.DecodeString(raw)
		d := NewDecoder(DecoderConfig{})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := d.Decode(0, payload)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; err == nil || got > 1<<16 {
			t.Errorf("%s: error %v, %d bytes allocated", raw, err, got)
		}
	}
}

func TestReasonNames(t *testing.T) {
	seen := make(map[string]bool)
	for r := Reason(0); r < NumReasons; r++ {
		name := r.String()
		if name == "" || strings.Contains(name, " ") || seen[name] {
			t.Errorf("reason %d is called %q", r, name)
		}
		seen[name] = true
	}
	if Malformed != NumReasons-1 || used.String() != "reason 16" {
		t.Errorf("the last reason is %d of %d", Malformed, NumReasons)
	}
}

func FuzzDecode(f *testing.F) {
	for _, row := range payloads {
		payload, err := hex.DecodeString(row.hex)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload, row.counted, uint8(4))
	}
	f.Add(payloadOf(f, stored(object{"extra_keys": []any{[]any{"dynamo-cache-salt:a", []any{mmKey, 1}}}}, 1), stored(object{"parent_block_hash": 1}, 2)), true, uint8(0))
	f.Fuzz(func(t *testing.T, payload []byte, counted bool, size uint8) {
		d := NewDecoder(DecoderConfig{Source: Source{Worker: 7}, Counted: counted, BlockSize: int(size), MaxSalted: 4})
		kept := slices.Clone(payload)
		for range 2 {
			b, err := d.Decode(3, payload)
			if err != nil {
				if b != nil {
					t.Fatal("a batch and an error")
				}
				continue
			}
			n := 0
			for _, ev := range b.Events {
				n += len(ev.Blocks)
				if ev.Kind != Cleared && len(ev.Blocks) == 0 {
					t.Fatalf("an event without blocks: %+v", ev)
				}
			}
			if n > len(payload) {
				t.Fatalf("%d blocks out of %d bytes", n, len(payload))
			}
			roundTrip(t, b)
		}
		if !slices.Equal(kept, payload) {
			t.Fatal("the payload was changed")
		}
	})
}
