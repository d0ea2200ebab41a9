package nvext

import (
	"encoding/json"
	"strconv"
)

// Response is the nvext member of an answer. Members that are not set are left
// out; a Response where none is set is left out as a whole, see [Response.Empty].
// The raw members are JSON text from the engine.
type Response struct {
	// WorkerID says which workers served the request.
	WorkerID *WorkerIDs `json:"worker_id,omitzero"`
	// Timing says how long its parts took.
	Timing *Timing `json:"timing,omitzero"`
	// TokenIDs is the tokenized prompt, in answer to a query-only request.
	TokenIDs []uint32 `json:"token_ids,omitzero"`
	// RoutedExperts is the engine's record of experts used.
	RoutedExperts json.RawMessage `json:"routed_experts,omitzero"`
	// EngineData is whatever else the engine wants to say.
	EngineData json.RawMessage `json:"engine_data,omitzero"`
	// StopReason is the stop string or token that ended the text.
	StopReason json.RawMessage `json:"stop_reason,omitzero"`
	// CompletionTokenIDs is the generated tokens.
	CompletionTokenIDs json.RawMessage `json:"completion_token_ids,omitzero"`
	// PromptLogprobs is the log probabilities of the prompt.
	PromptLogprobs json.RawMessage `json:"prompt_logprobs,omitzero"`
	// Routing says why the request went where it did.
	Routing *Routing `json:"routing,omitzero"`
}

// WorkerIDs names the worker and rank of each phase. A request served by one
// worker names it in both.
type WorkerIDs struct {
	PrefillWorkerID *uint64 `json:"prefill_worker_id,omitzero"`
	PrefillDPRank   *uint32 `json:"prefill_dp_rank,omitzero"`
	DecodeWorkerID  *uint64 `json:"decode_worker_id,omitzero"`
	DecodeDPRank    *uint32 `json:"decode_dp_rank,omitzero"`
}

// Record notes the worker of a phase, and its rank if known. What has been
// recorded before stays. An aggregated request counts as both phases.
func (w *WorkerIDs) Record(phase Phase, worker uint64, rank *uint32) {
	if phase != Decode && w.PrefillWorkerID == nil {
		w.PrefillWorkerID, w.PrefillDPRank = &worker, rank
	}
	if phase != Prefill && w.DecodeWorkerID == nil {
		w.DecodeWorkerID, w.DecodeDPRank = &worker, rank
	}
}

// Timing is how long the parts of a request took, in milliseconds. What is not
// known is nil and left out.
type Timing struct {
	// RequestReceivedMS is when the request came, in milliseconds since the epoch.
	RequestReceivedMS uint64 `json:"request_received_ms"`
	// PrefillWaitTimeMS is from there to the dispatch to the prefill worker.
	PrefillWaitTimeMS *Float `json:"prefill_wait_time_ms,omitzero"`
	// PrefillTimeMS is from dispatch to the first token.
	PrefillTimeMS *Float `json:"prefill_time_ms,omitzero"`
	// TTFTMS is from receipt to the first token.
	TTFTMS *Float `json:"ttft_ms,omitzero"`
	// TotalTimeMS is from receipt to the end.
	TotalTimeMS *Float `json:"total_time_ms,omitzero"`
	// KVHitRate is the share of prompt blocks found in cache, 0 to 1.
	KVHitRate *Float `json:"kv_hit_rate,omitzero"`
	// RouterQueueDepth is how many requests were waiting at routing.
	RouterQueueDepth *uint64 `json:"router_queue_depth,omitzero"`
	// KVTransferEstimatedLatencyMS is the time the cache took to move from the
	// prefill to the decode worker.
	KVTransferEstimatedLatencyMS *Float `json:"kv_transfer_estimated_latency_ms,omitzero"`
}

// Empty reports whether there is nothing to say. A nil Response is empty.
func (r *Response) Empty() bool {
	return r == nil || r.WorkerID == nil && r.Timing == nil && r.TokenIDs == nil &&
		r.RoutedExperts == nil && r.EngineData == nil && r.StopReason == nil &&
		r.CompletionTokenIDs == nil && r.PromptLogprobs == nil && r.Routing == nil
}

// AppendJSON appends what json.Marshal makes of r: one line, so that it can
// stand in a server-sent event. A raw member that is not valid JSON becomes
// null, where json.Marshal would fail.
func (r *Response) AppendJSON(dst []byte) []byte {
	if r == nil {
		return append(dst, "null"...)
	}
	w := objectWriter{dst: append(dst, '{'), first: true}
	if r.WorkerID != nil {
		w.key("worker_id")
		w.dst = r.WorkerID.append(w.dst)
	}
	if r.Timing != nil {
		w.key("timing")
		w.dst = r.Timing.append(w.dst)
	}
	if r.TokenIDs != nil {
		w.key("token_ids")
		w.dst = append(w.dst, '[')
		for i, id := range r.TokenIDs {
			if i > 0 {
				w.dst = append(w.dst, ',')
			}
			w.dst = strconv.AppendUint(w.dst, uint64(id), 10)
		}
		w.dst = append(w.dst, ']')
	}
	w.raw("routed_experts", r.RoutedExperts)
	w.raw("engine_data", r.EngineData)
	w.raw("stop_reason", r.StopReason)
	w.raw("completion_token_ids", r.CompletionTokenIDs)
	w.raw("prompt_logprobs", r.PromptLogprobs)
	if r.Routing != nil {
		w.key("routing")
		w.any(r.Routing)
	}
	return append(w.dst, '}')
}

func (w *WorkerIDs) append(dst []byte) []byte {
	o := objectWriter{dst: append(dst, '{'), first: true}
	writeUint(&o, "prefill_worker_id", w.PrefillWorkerID)
	writeUint(&o, "prefill_dp_rank", w.PrefillDPRank)
	writeUint(&o, "decode_worker_id", w.DecodeWorkerID)
	writeUint(&o, "decode_dp_rank", w.DecodeDPRank)
	return append(o.dst, '}')
}

func (t *Timing) append(dst []byte) []byte {
	o := objectWriter{dst: append(dst, '{'), first: true}
	writeUint(&o, "request_received_ms", &t.RequestReceivedMS)
	o.float("prefill_wait_time_ms", t.PrefillWaitTimeMS)
	o.float("prefill_time_ms", t.PrefillTimeMS)
	o.float("ttft_ms", t.TTFTMS)
	o.float("total_time_ms", t.TotalTimeMS)
	o.float("kv_hit_rate", t.KVHitRate)
	writeUint(&o, "router_queue_depth", t.RouterQueueDepth)
	o.float("kv_transfer_estimated_latency_ms", t.KVTransferEstimatedLatencyMS)
	return append(o.dst, '}')
}

// objectWriter appends the members of one JSON object; unset ones are skipped.
type objectWriter struct {
	dst   []byte
	first bool
}

func (o *objectWriter) key(name string) {
	if !o.first {
		o.dst = append(o.dst, ',')
	}
	o.first = false
	o.dst = append(append(append(o.dst, '"'), name...), '"', ':')
}

func (o *objectWriter) float(name string, v *Float) {
	if v != nil {
		o.key(name)
		o.dst = v.append(o.dst)
	}
}

func (o *objectWriter) raw(name string, v json.RawMessage) {
	if v != nil {
		o.key(name)
		o.any(v)
	}
}

func (o *objectWriter) any(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		b = []byte("null")
	}
	o.dst = append(o.dst, b...)
}

func writeUint[T uint32 | uint64](o *objectWriter, name string, v *T) {
	if v != nil {
		o.key(name)
		o.dst = strconv.AppendUint(o.dst, uint64(*v), 10)
	}
}
