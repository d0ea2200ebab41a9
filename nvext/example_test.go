package nvext_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/stator-ai/stator/nvext"
)

func ExampleNew() {
	e := nvext.New(
		nvext.Priority(5),
		nvext.OSL(256),
		nvext.PrefixID("run-42/planner"),
		nvext.Remaining(4),
		nvext.InterArrival(250*time.Millisecond),
		nvext.CacheTTL(2*time.Minute),
		nvext.Extra("timing", "worker_id"),
	)
	b, err := json.MarshalIndent(map[string]any{"model": "m", "nvext": e}, "", "  ")
	if err != nil {
		panic(err)
	}
	fmt.Println(string(b))
	// Output:
	// {
	//   "model": "m",
	//   "nvext": {
	//     "extra_fields": [
	//       "timing",
	//       "worker_id"
	//     ],
	//     "agent_hints": {
	//       "osl": 256,
	//       "priority": 5,
	//       "prefix_id": "run-42/planner",
	//       "total_requests": 5,
	//       "iat": 250
	//     },
	//     "cache_control": {
	//       "type": "ephemeral",
	//       "ttl": "2m"
	//     }
	//   }
	// }
}

func ExampleParse() {
	e, err := nvext.Parse([]byte(`{"agent_hints":{"priority":5,"iat":"soon"},"my_key":1}`))
	if err != nil {
		panic(err)
	}
	fmt.Println("head start:", e.AgentHints.PriorityJump(false), "s")
	fmt.Println("ignored:", e.Ignored)

	_, err = nvext.Parse([]byte(`{"agent_hints":{"priority":"high"}}`))
	fmt.Println(err)
	// Output:
	// head start: 5 s
	// ignored: [{nvext.agent_hints.iat not a number}]
	// nvext.agent_hints.priority must be a signed 32-bit integer, got string "high"
}

func ExampleApplyHeaders() {
	header := map[string]string{"X-Worker-Instance-Id": "7", "X-Dp-Rank": "zero"}
	e, ignored := nvext.ApplyHeaders(nil, func(name string) string { return header[name] })

	worker, rank, pinned := e.Pin(nvext.Aggregated)
	fmt.Println(worker, rank, pinned)
	fmt.Println(ignored)
	// Output:
	// 7 <nil> true
	// [{X-Dp-Rank not an unsigned 32-bit integer}]
}

func ExampleTTL() {
	d := nvext.TTL(40, 3000) // 40 calls, 3 s apart
	fmt.Println(d, nvext.FormatTTL(d))
	// Output: 2m0s 2m
}

func ExampleResponse() {
	var chunk struct {
		NvExt *nvext.Response `json:"nvext"`
	}
	data := `{"nvext":{"worker_id":{"decode_worker_id":7},"timing":{"request_received_ms":1700000000123,"ttft_ms":12.5}}}`
	if err := json.Unmarshal([]byte(data), &chunk); err != nil {
		panic(err)
	}
	fmt.Println(*chunk.NvExt.WorkerID.DecodeWorkerID, *chunk.NvExt.Timing.TTFTMS)
	// Output: 7 12.5
}
