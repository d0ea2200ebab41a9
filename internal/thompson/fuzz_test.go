package thompson

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// input reads values out of fuzzed bytes, and zeros after their end.
type input struct{ b []byte }

func (in *input) byte() byte {
	if len(in.b) == 0 {
		return 0
	}
	v := in.b[0]
	in.b = in.b[1:]
	return v
}

func (in *input) word() uint64 {
	var w [8]byte
	n := copy(w[:], in.b)
	in.b = in.b[n:]
	return binary.LittleEndian.Uint64(w[:])
}

// number is anything, mostly small.
func (in *input) number() float64 {
	switch k := in.byte(); k {
	case 255:
		return math.Float64frombits(in.word())
	case 254:
		return math.NaN()
	case 253:
		return math.Inf(1)
	default:
		return float64(k) / 16
	}
}

func (in *input) whole() int {
	if k := in.byte(); k < 250 {
		return int(k) * 40
	}
	return int(in.word())
}

func (in *input) arms() []Arm {
	arms := make([]Arm, in.byte()%5)
	for i := range arms {
		k := in.byte()
		arms[i] = Arm{
			ID: kv.Source{Worker: kv.WorkerID(i + 1 + int(k>>6)), Rank: uint32(k & 1)}, Overlap: in.number(), KVUsage: in.number(), Queue: in.number(),
			Scraped: k&2 != 0, Healthy: k&4 == 0, Cost: in.number(), PrefillTokens: in.whole(), KVTokens: in.whole(), InFlight: in.whole(),
		}
	}
	return arms
}

func (in *input) request(arms int) *Request {
	return &Request{
		PromptTokens: in.whole(), BlockSize: in.whole(), Baseline: int(in.byte()) % (arms + 1), Prefix: PrefixID{in.byte() % 8},
		Budget: in.whole(), TTL: time.Duration(in.word()), OSL: Level(in.byte()), IAT: Level(in.byte() % 4),
	}
}

func fuzzSeeds(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("2 arms and some numbers: 0123456789 0123456789 0123456789 0123456789 0123456789"))
	long := make([]byte, 2000)
	for i := range long {
		long[i] = byte(i * i * 7 / 3)
	}
	f.Add(long)
}

func checkNumbers(t *testing.T, what string, values ...float64) {
	t.Helper()
	for _, v := range values {
		if !isNumber(v) {
			t.Fatalf("%s: %v", what, values)
		}
	}
}

func FuzzReference(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		in := &input{b}
		r := newReference(t, func(c *ReferenceConfig) { c.MaxPending, c.MaxPrefixes = 16, 4 })
		d, _ := seeded(uint64(len(b)))
		now := start
		var ids []uint64
		for len(in.b) > 0 {
			now = now.Add(time.Duration(in.byte()) * 100 * time.Millisecond)
			switch in.byte() % 8 {
			case 0:
				r.sweep(now)
			case 1:
				r.Forget(rank(int(in.byte()%4) + 1))
			case 2, 3:
				if len(ids) == 0 {
					continue
				}
				id := ids[int(in.byte())%len(ids)]
				res, err := r.Feedback(now, id, Feedback{Latency: time.Duration(in.word()), TokensOut: in.whole(), Failed: in.byte()%4 == 0})
				if err == nil {
					checkNumbers(t, "result", res.Metric, res.Baseline, res.After, res.Reward)
					if res.Reward < 0 || res.Reward > 1 {
						t.Fatalf("reward %v", res.Reward)
					}
				}
			default:
				arms := in.arms()
				out := make([]Choice, len(arms))
				dec := r.Decide(now, d, in.request(len(arms)), arms, out)
				if (dec.Chosen < 0) != (len(arms) == 0) {
					t.Fatalf("%+v of %d arms", dec, len(arms))
				}
				if dec.Chosen < 0 {
					continue
				}
				ids = append(ids, dec.ID)
				sum := 0.0
				for i := range out {
					c := &out[i]
					checkNumbers(t, "choice", c.Score, c.P, c.Mean, c.Noise, c.Beta, c.Affinity, c.Switch, c.Load, c.Job, c.Outstanding)
					checkNumbers(t, "features", c.X[:]...)
					sum += c.P
				}
				if math.Abs(sum-1) > 1e-9 {
					t.Fatalf("probabilities sum to %v", sum)
				}
			}
		}
		if s := r.Stats(); s.Pending > 16 || s.Prefixes > 4 {
			t.Fatalf("%+v", s)
		}
		checkSums(t, r)
		data, err := r.State().MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Restore(data); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzSafe(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		in := &input{b}
		k := in.byte()
		s := newSafe(t, func(c *SafeConfig) {
			c.OneHead, c.Shadow, c.MaxPending, c.Samples, c.StopAfter = k&1 != 0, k&2 != 0, 16, 4, 2
		})
		d, _ := seeded(uint64(len(b)))
		now := start
		var ids []uint64
		for len(in.b) > 0 {
			now = now.Add(time.Duration(in.byte()) * time.Second)
			id := uint64(0)
			if len(ids) > 0 {
				id = ids[int(in.byte())%len(ids)]
			}
			switch in.byte() % 8 {
			case 0:
				s.Tick(now)
			case 1:
				s.Forget(rank(int(in.byte()%4) + 1))
			case 2:
				s.FirstToken(now, id, time.Duration(in.word()))
			case 3:
				s.Done(now, id, time.Duration(in.word()), Outcome(in.byte()%4))
			case 4:
				s.PrefillRate(in.number())
			default:
				arms := in.arms()
				out := make([]SafeChoice, len(arms))
				req := in.request(len(arms))
				dec := s.Decide(now, d, req, arms, out)
				if (dec.Chosen < 0) != (req.Baseline >= len(arms)) {
					t.Fatalf("%+v of %d arms", dec, len(arms))
				}
				if dec.Chosen < 0 {
					continue
				}
				ids = append(ids, dec.ID)
				if dec.Chosen != req.Baseline && !(arms[dec.Chosen].Healthy && arms[dec.Chosen].Cost <= dec.Limit) {
					t.Fatalf("%+v: not admissible", dec)
				}
				checkNumbers(t, "decision", dec.P, dec.Budget, dec.Excess)
				sum := 0.0
				for i := range out {
					c := &out[i]
					checkNumbers(t, "choice", c.Score, c.Prior, c.Residual, c.Offset, c.P)
					checkNumbers(t, "features", c.X[:]...)
					sum += c.P
				}
				if math.Abs(sum-1) > 1e-9 || dec.P <= 0 {
					t.Fatalf("probabilities sum to %v, chosen with %v", sum, dec.P)
				}
			}
		}
		st := s.Stats()
		checkNumbers(t, "stats", st.Budget, st.PrefillRate)
		checkNumbers(t, "means", append(st.Mean[0][:], st.Mean[1][:]...)...)
		if c := s.Compare(now); math.IsNaN(c.Difference) || st.Pending > 16 {
			t.Fatalf("%+v, %+v", c, st)
		}
		data, err := s.State().MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Restore(data); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"version":1,"policy":"safe","one_head":false,"heads":[],"arms":null,"prefill":{"tokens":1,"seconds":1},"budget":3}`))
	f.Add([]byte(`{"version":1,"policy":"reference","latency_ms":[-1,-1],"arms":[{"worker":1,"rank":0}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, _ := seeded(1)
		if r := newReference(t, nil); r.Restore(data) == nil {
			out := make([]Choice, 1)
			r.Decide(start, d, &Request{PromptTokens: 100}, []Arm{{ID: rank(1)}}, out)
			checkNumbers(t, "reference", out[0].Score, out[0].P)
		}
		if s := newSafe(t, nil); s.Restore(data) == nil {
			out := make([]SafeChoice, 3)
			s.Decide(start, d, &Request{PromptTokens: 1024, BlockSize: 16, Baseline: 1}, vectorArms(), out)
			checkNumbers(t, "safe", out[0].Score, out[0].P)
		}
	})
}
