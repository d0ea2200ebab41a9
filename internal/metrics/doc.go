// Package metrics defines every Prometheus series of the server, each by its
// exact name, and the recorders through which other packages feed them.
//
// A Set owns a registry. From it come several kinds of handle: a Model for what
// is counted per served model, with a Request for each request and a Generation for
// each chat or completion that is sent to a worker; a Worker for the gauges of one rank
// of one engine; a Truth for what was predicted of an
// engine's cache and came true; a Router for one pool's placement figures, with a
// QueueClass for each class of its queue; a Thompson for the bandit policies; a Work
// for the requests to a component; an IndexService for the requests of an index
// service. A handle resolves its series when it is made, so that recording is a few
// atomic operations; look handles up once and keep them. What counts for itself, as an
// index does, is asked when it is scraped: Set.WatchIndex, Set.WatchEngines,
// Set.WatchLearner.
//
// Names under dynamo_ and thompson_router_ are a contract with existing dashboards and
// collectors and keep the labels and buckets found there. Where those expect several
// processes, Set.HandlerOf exposes the series of each as a Part:
//
//	worker     dynamo_component_kvstats_*, dynamo_component_{requests_total,
//	           request_duration_seconds,inflight_requests} of namespace workers
//	router     thompson_router_*, the same of component router
//	processor  dynamo_component_thompson_*, the same of namespace dynamo and component backend
//	frontend   all others
//
// KV efficiency, the share of prompt tokens that engines found in their caches, is the
// ratio of the rates of dynamo_component_thompson_kve_cached_tokens_total and
// …_kve_prompt_tokens_total, or of stator_kve_cached_tokens_total and
// …_prompt_tokens_total by model, worker and class of prefix. It counts complete answers
// to chats and completions, whatever policy placed them.
//
// Catalogue lists all families, for what is made from their names: rules and dashboards.
//
// Names under stator_ are this project's own. In the families that describe requests the
// model label is lower-cased, elsewhere it is the served name as it is; models whose
// names differ only by case share the former.
//
// The number of series is bounded: every label value is a served model, one of a
// model's first 1024 adapters in use, a configured queue class, a live worker, or
// comes from a fixed list. Callers pass UnknownModel for a model
// that is not served, and call DropModel and DropWorker when one leaves. A
// handle outlives its series: what it records after the drop goes nowhere.
//
// The package reads no clock, no environment and no flags, and keeps no global
// state. All types are safe for concurrent use except Request and Generation.
package metrics
