package nvext

import (
	"slices"
	"strings"
)

// Phase is the part of a request that a worker does.
type Phase uint8

const (
	// Aggregated is prefill and decode on one worker.
	Aggregated Phase = iota
	// Prefill computes the prompt only.
	Prefill
	// Decode generates from a prompt computed elsewhere.
	Decode
)

// String is the phase's name in lower case.
func (p Phase) String() string {
	switch p {
	case Aggregated:
		return "aggregated"
	case Prefill:
		return "prefill"
	case Decode:
		return "decode"
	}
	return "unknown"
}

// Pin is the worker the request insists on for a phase, and the rank there if
// it names one. ok is false, and the rest zero, when the phase is not pinned.
//
// An aggregated request is pinned by backend_instance_id alone. The other
// phases look at their own worker id first and fall back to it; prefill does
// the same with its rank.
func (e *NvExt) Pin(phase Phase) (worker uint64, rank *uint32, ok bool) {
	if e == nil {
		return 0, nil, false
	}
	id, rank := e.BackendInstanceID, e.DPRank
	switch phase {
	case Prefill:
		if e.PrefillWorkerID != nil {
			id = e.PrefillWorkerID
		}
		if e.PrefillDPRank != nil {
			rank = e.PrefillDPRank
		}
	case Decode:
		if e.DecodeWorkerID != nil {
			id = e.DecodeWorkerID
		}
	}
	if id == nil {
		return 0, nil, false
	}
	return *id, rank, true
}

// PinPath is the JSON path of the first set field that narrows the choice of a
// worker, for a message that refuses it; empty when there is none.
func (e *NvExt) PinPath() string {
	switch {
	case e == nil:
		return ""
	case e.BackendInstanceID != nil:
		return "nvext.backend_instance_id"
	case e.PrefillWorkerID != nil:
		return "nvext.prefill_worker_id"
	case e.DecodeWorkerID != nil:
		return "nvext.decode_worker_id"
	case e.DPRank != nil:
		return "nvext.dp_rank"
	case e.PrefillDPRank != nil:
		return "nvext.prefill_dp_rank"
	case e.AllowedWorkerIDs != nil:
		return "nvext.allowed_worker_ids"
	}
	return ""
}

// QueryOnly reports whether the request only asks which worker it would get: an
// annotation that starts with "query_instance_id:", colon included.
func (e *NvExt) QueryOnly() bool {
	return e != nil && slices.ContainsFunc(e.Annotations, func(a string) bool {
		return strings.HasPrefix(a, "query_instance_id:")
	})
}

// Wants reports whether extra_fields names a member of the answer's nvext.
func (e *NvExt) Wants(name string) bool {
	return e != nil && slices.Contains(e.ExtraFields, name)
}

// HasAnnotation reports whether annotations holds exactly name.
func (e *NvExt) HasAnnotation(name string) bool {
	return e != nil && slices.Contains(e.Annotations, name)
}

// PriorityJump is the head start in the router's queue, in seconds: the
// priority, or 0 where that is negative; without a priority the latency
// sensitivity as it is; otherwise 0. With preferSensitivity a latency
// sensitivity goes before a priority, which puts right clients that send both
// and count priority downwards.
func (h *AgentHints) PriorityJump(preferSensitivity bool) float64 {
	switch {
	case h == nil:
		return 0
	case h.LatencySensitivity != nil && (preferSensitivity || h.Priority == nil):
		return *h.LatencySensitivity
	case h.Priority != nil:
		return float64(max(*h.Priority, 0))
	}
	return 0
}

// EnginePriority is the priority for the engine, higher more urgent, negative
// ones included; ok is false when the request states none. An engine that
// counts the other way round needs it negated, in more than 32 bits.
func (h *AgentHints) EnginePriority() (priority int32, ok bool) {
	if h == nil || h.Priority == nil {
		return 0, false
	}
	return *h.Priority, true
}
