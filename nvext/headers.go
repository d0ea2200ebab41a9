package nvext

import "strings"

// Names of the request headers read by [ApplyHeaders] and [ApplyMeta], in the
// canonical spelling of MIME headers, so that looking one up in a map keyed by
// that spelling needs no conversion.
const (
	// HeaderDynamoWorkerInstanceID pins the request: backend_instance_id and
	// decode_worker_id.
	HeaderDynamoWorkerInstanceID = "X-Dynamo-Worker-Instance-Id"
	// HeaderWorkerInstanceID is an alias of HeaderDynamoWorkerInstanceID.
	HeaderWorkerInstanceID = "X-Worker-Instance-Id"
	// HeaderDynamoPrefillInstanceID sets prefill_worker_id.
	HeaderDynamoPrefillInstanceID = "X-Dynamo-Prefill-Instance-Id"
	// HeaderPrefillInstanceID is an alias of HeaderDynamoPrefillInstanceID.
	HeaderPrefillInstanceID = "X-Prefill-Instance-Id"
	// HeaderDynamoDPRank sets dp_rank.
	HeaderDynamoDPRank = "X-Dynamo-Dp-Rank"
	// HeaderDPRank is an alias of HeaderDynamoDPRank.
	HeaderDPRank = "X-Dp-Rank"
	// HeaderDataParallelRank is an alias of HeaderDynamoDPRank.
	HeaderDataParallelRank = "X-Data-Parallel-Rank"
	// HeaderDynamoPrefillDPRank sets prefill_dp_rank; 4294967295 says nothing.
	HeaderDynamoPrefillDPRank = "X-Dynamo-Prefill-Dp-Rank"
	// HeaderPrefillDPRank is an alias of HeaderDynamoPrefillDPRank.
	HeaderPrefillDPRank = "X-Prefill-Dp-Rank"

	// HeaderRequestPriority sets agent_hints.priority.
	HeaderRequestPriority = "X-Dynamo-Request-Priority"
	// HeaderRequestStrictPriority sets agent_hints.strict_priority.
	HeaderRequestStrictPriority = "X-Dynamo-Request-Strict-Priority"
	// HeaderTenantID sets cache_salt.
	HeaderTenantID = "X-Tenant-Id"
	// HeaderMetaPrefix begins the name of every metadata header.
	HeaderMetaPrefix = "X-Dynamo-Meta-"

	// HeaderSessionID names the session of any client.
	HeaderSessionID = "X-Dynamo-Session-Id"
	// HeaderParentSessionID names the session that started it.
	HeaderParentSessionID = "X-Dynamo-Parent-Session-Id"
	// HeaderSessionFinal is true on a session's last request.
	HeaderSessionFinal = "X-Dynamo-Session-Final"
	// HeaderClaudeCodeSessionID names a session of Claude Code.
	HeaderClaudeCodeSessionID = "X-Claude-Code-Session-Id"
	// HeaderClaudeCodeAgentID names the agent within it.
	HeaderClaudeCodeAgentID = "X-Claude-Code-Agent-Id"
	// HeaderClaudeCodeParentAgentID names the agent that started that one.
	HeaderClaudeCodeParentAgentID = "X-Claude-Code-Parent-Agent-Id"
	// HeaderCodexThreadID names a thread of Codex.
	HeaderCodexThreadID = "Thread-Id"
	// HeaderCodexParentThreadID names the thread that started it.
	HeaderCodexParentThreadID = "X-Codex-Parent-Thread-Id"
	// HeaderOpenCodeSessionID names a session of OpenCode.
	HeaderOpenCodeSessionID = "X-Session-Id"
	// HeaderOpenCodeParentSessionID names the session that started it.
	HeaderOpenCodeParentSessionID = "X-Parent-Session-Id"

	// HeaderPrefixID is an older carrier of agent_hints.prefix_id.
	HeaderPrefixID = "X-Prefix-Id"
	// HeaderPrefixTotalRequests is an older carrier of agent_hints.total_requests.
	HeaderPrefixTotalRequests = "X-Prefix-Total-Requests"
	// HeaderPrefixOSL is an older carrier of agent_hints.osl.
	HeaderPrefixOSL = "X-Prefix-Osl"
	// HeaderPrefixIAT is an older carrier of agent_hints.iat.
	HeaderPrefixIAT = "X-Prefix-Iat"
	// HeaderPrefixLatencySensitivity is an older carrier of
	// agent_hints.latency_sensitivity.
	HeaderPrefixLatencySensitivity = "X-Prefix-Latency-Sensitivity"
	// HeaderNATRemainingLLMCalls counts the calls after this one. It counts where
	// nothing says how many there are in all.
	HeaderNATRemainingLLMCalls = "X-Nat-Remaining-Llm-Calls"
	// HeaderNATInterArrivalMS is the oldest carrier of agent_hints.iat.
	HeaderNATInterArrivalMS = "X-Nat-Interarrival-Ms"
	// HeaderNATExpectedOutputTokens is the oldest carrier of agent_hints.osl.
	HeaderNATExpectedOutputTokens = "X-Nat-Expected-Output-Tokens"
)

// IsHeader reports whether [ApplyHeaders] or [ApplyMeta] read the header of that
// name, in canonical spelling. A server that looks at the names a request has is
// done sooner than one that asks for each name there is.
func IsHeader(name string) bool {
	switch name {
	case HeaderDynamoWorkerInstanceID, HeaderWorkerInstanceID, HeaderDynamoPrefillInstanceID, HeaderPrefillInstanceID,
		HeaderDynamoDPRank, HeaderDPRank, HeaderDataParallelRank, HeaderDynamoPrefillDPRank, HeaderPrefillDPRank,
		HeaderRequestPriority, HeaderRequestStrictPriority, HeaderTenantID,
		HeaderSessionID, HeaderParentSessionID, HeaderSessionFinal,
		HeaderClaudeCodeSessionID, HeaderClaudeCodeAgentID, HeaderClaudeCodeParentAgentID,
		HeaderCodexThreadID, HeaderCodexParentThreadID, HeaderOpenCodeSessionID, HeaderOpenCodeParentSessionID,
		HeaderPrefixID, HeaderPrefixTotalRequests, HeaderPrefixOSL, HeaderPrefixIAT, HeaderPrefixLatencySensitivity,
		HeaderNATRemainingLLMCalls, HeaderNATInterArrivalMS, HeaderNATExpectedOutputTokens:
		return true
	}
	return strings.HasPrefix(name, HeaderMetaPrefix)
}
