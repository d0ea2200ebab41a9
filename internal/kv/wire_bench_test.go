package kv

import (
	"math/rand/v2"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// engineBatch is a batch of stored events in the map form of vLLM 0.24.
func engineBatch(events, blocks, size int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, 1700000000.5)
	b = msgp.AppendArrayHeader(b, uint32(events))
	for range events {
		b = msgp.AppendMapHeader(b, 8)
		b = msgp.AppendString(msgp.AppendString(b, "type"), "BlockStored")
		b = msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), uint32(blocks))
		for range blocks {
			b = msgp.AppendUint64(b, rng.Uint64())
		}
		b = msgp.AppendUint64(msgp.AppendString(b, "parent_block_hash"), rng.Uint64())
		b = msgp.AppendArrayHeader(msgp.AppendString(b, "token_ids"), uint32(blocks*size))
		for range blocks * size {
			b = msgp.AppendUint32(b, rng.Uint32N(150_000))
		}
		b = msgp.AppendInt(msgp.AppendString(b, "block_size"), size)
		b = msgp.AppendString(msgp.AppendString(b, "medium"), "GPU")
		b = msgp.AppendInt(msgp.AppendString(b, "group_idx"), 0)
		b = msgp.AppendString(msgp.AppendString(b, "kv_cache_spec_kind"), "full_attention")
	}
	return msgp.AppendInt(b, 0)
}

// BenchmarkDecode reads batches of eight events of 64 blocks of 16 tokens.
func BenchmarkDecode(b *testing.B) {
	const events, blocks = 8, 64
	payload := engineBatch(events, blocks, 16)
	d := NewDecoder(DecoderConfig{Source: Source{Worker: 1}, Counted: true})
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		batch, err := d.Decode(1, payload)
		if err != nil || len(batch.Events) != events {
			b.Fatal(batch, err)
		}
	}
	perBlock(b, events*blocks)
}

func perBlock(b *testing.B, blocks int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(blocks), "ns/block")
}

// BenchmarkRouterEvent writes and reads events of 512 blocks.
func BenchmarkRouterEvent(b *testing.B) {
	const blocks = 512
	rng := rand.New(rand.NewPCG(1, 2))
	ev := &Event{Kind: Stored, Parent: 1, HasParent: true}
	for range blocks {
		ev.Blocks = append(ev.Blocks, Block{BlockID(rng.Uint64()), LocalHash(rng.Uint64())})
	}
	src := Source{Worker: 1}
	for _, form := range []struct {
		name   string
		append func([]byte, Source, uint64, *Event) ([]byte, error)
		parse  func([]byte) (*Batch, error)
	}{{"JSON", AppendJSON, ParseJSON}, {"MessagePack", AppendMsgpack, ParseMsgpack}} {
		raw, err := form.append(nil, src, 1, ev)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("append "+form.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := form.append(raw[:0], src, 1, ev); err != nil {
					b.Fatal(err)
				}
			}
			perBlock(b, blocks)
		})
		b.Run("parse "+form.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := form.parse(raw); err != nil {
					b.Fatal(err)
				}
			}
			perBlock(b, blocks)
		})
	}
}
