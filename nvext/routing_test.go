package nvext

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sampleRouting() *Routing {
	chosen := Candidate{
		WorkerID: 11, DPRank: 1, State: StateEligible, Inflight: 3, ActivePrefillTokens: 2048, ActiveDecodeBlocks: 96, OverlapBlocks: 48,
		Score: 240, Terms: []Term{{"prefill", 192}, {"overlap", -48}, {"decode", 96}}, Propensity: new(Float(0.75)),
	}
	return &Routing{
		RequestID: "11111111-1111-4111-8111-111111111111",
		Model:     "m",
		Mode:      "kv",
		Policy:    "cost",
		Reason:    ReasonCost,
		Chosen:    chosen,
		Candidates: []Candidate{
			chosen,
			{WorkerID: 12, State: StateOverloaded, Inflight: 40, Score: Float(math.NaN())},
		},
		Considered:  17,
		Tied:        2,
		Seed:        new(uint64(math.MaxUint64)),
		Attempt:     1,
		QueueWaitMS: 1.25,
		Expected: &Expected{
			OSL: new(uint32(256)), RemainingCalls: new(uint64(3)), IATMS: new(uint64(250)),
			Inferred: []Inferred{{InferredRemainingCalls, SourceFamily, 7}, {InferredIAT, SourceSession, 4}},
		},
		OverlapBlocks:         48,
		TotalBlocks:           128,
		PredictedCachedTokens: new(768),
	}
}

const routingGolden = `{
  "request_id": "11111111-1111-4111-8111-111111111111",
  "model": "m",
  "mode": "kv",
  "policy": "cost",
  "reason": "cost",
  "chosen": {
    "worker_id": 11,
    "dp_rank": 1,
    "state": "eligible",
    "inflight": 3,
    "active_prefill_tokens": 2048,
    "active_decode_blocks": 96,
    "overlap_blocks": 48,
    "score": 240.0,
    "terms": [
      {
        "name": "prefill",
        "value": 192.0
      },
      {
        "name": "overlap",
        "value": -48.0
      },
      {
        "name": "decode",
        "value": 96.0
      }
    ],
    "propensity": 0.75
  },
  "candidates": [
    {
      "worker_id": 11,
      "dp_rank": 1,
      "state": "eligible",
      "inflight": 3,
      "active_prefill_tokens": 2048,
      "active_decode_blocks": 96,
      "overlap_blocks": 48,
      "score": 240.0,
      "terms": [
        {
          "name": "prefill",
          "value": 192.0
        },
        {
          "name": "overlap",
          "value": -48.0
        },
        {
          "name": "decode",
          "value": 96.0
        }
      ],
      "propensity": 0.75
    },
    {
      "worker_id": 12,
      "dp_rank": 0,
      "state": "overloaded",
      "inflight": 40,
      "active_prefill_tokens": 0,
      "active_decode_blocks": 0,
      "overlap_blocks": 0,
      "score": null
    }
  ],
  "considered": 17,
  "tied": 2,
  "seed": "18446744073709551615",
  "attempt": 1,
  "queue_wait_ms": 1.25,
  "expected": {
    "osl": 256,
    "remaining_calls": 3,
    "iat_ms": 250,
    "inferred": [
      {
        "field": "remaining_calls",
        "source": "family",
        "samples": 7
      },
      {
        "field": "iat_ms",
        "source": "session",
        "samples": 4
      }
    ]
  },
  "overlap_blocks": 48,
  "total_blocks": 128,
  "predicted_cached_tokens": 768
}`

func TestRoutingGolden(t *testing.T) {
	r := sampleRouting()
	var got bytes.Buffer
	if err := json.Indent(&got, []byte(marshal(t, r)), "", "  "); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(routingGolden, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var back Routing
	if err := json.Unmarshal(got.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	sameFloat := cmp.Comparer(func(a, b Float) bool { return a == b || a != a && b != b })
	if diff := cmp.Diff(r, &back, sameFloat); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if got := r.Chosen.TermSum(); got != float64(r.Chosen.Score) {
		t.Errorf("terms sum to %v, score %v", got, r.Chosen.Score)
	}
}

// Without chance, ties or other candidates the members about them are absent.
func TestRoutingMinimal(t *testing.T) {
	r := &Routing{RequestID: "r", Model: "m", Phase: Decode.String(), Mode: "direct", Policy: "none", Reason: ReasonPinned, Chosen: Candidate{WorkerID: 1, State: StateEligible, Score: Float(math.NaN())}, Considered: 1, Attempt: 1}
	want := `{"request_id":"r","model":"m","phase":"decode","mode":"direct","policy":"none","reason":"pinned","chosen":{"worker_id":1,"dp_rank":0,"state":"eligible","inflight":0,"active_prefill_tokens":0,"active_decode_blocks":0,"overlap_blocks":0,"score":null},"considered":1,"attempt":1,"queue_wait_ms":0.0,"overlap_blocks":0,"total_blocks":0,"predicted_cached_tokens":null}`
	if got := marshal(t, r); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestPolicyDecisionGolden(t *testing.T) {
	d := &PolicyDecision{
		Variant: "shadow", Why: "shadow", P: 1, Would: &Rank{WorkerID: 12, DPRank: 1},
		Budget: new(Float(19.5)), Limit: new(Float(math.NaN())), Features: []string{"one", "overlap"},
	}
	r := &Routing{PolicyDecision: d, Chosen: Candidate{PolicyX: []Float{1, 0.25}}}
	text := marshal(t, r)
	for _, want := range []string{
		`"policy_decision":{"variant":"shadow","why":"shadow","p":1.0,"would":{"worker_id":12,"dp_rank":1},"budget":19.5,"limit":null,"features":["one","overlap"]}`,
		`"policy_x":[1.0,0.25]`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
	var back Routing
	if err := json.Unmarshal([]byte(text), &back); err != nil {
		t.Fatal(err)
	}
	sameFloat := cmp.Comparer(func(a, b Float) bool { return a == b || a != a && b != b })
	d.Limit = nil // null says that there is none
	if diff := cmp.Diff(r, &back, sameFloat); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if got, want := marshal(t, &PolicyDecision{Variant: "reference", Why: "sampled", P: 0.5}), `{"variant":"reference","why":"sampled","p":0.5}`; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}
