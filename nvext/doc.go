// Package nvext holds the nvext extension of the OpenAI API: what a client may
// say about a request besides the prompt, and what the server may say about
// the answer besides the text. Server and client share it. It imports nothing
// but the standard library and opens no socket.
//
// # For someone who writes an agent
//
// An agent knows things a single request does not show: that four more calls
// will follow on the same conversation, that a person is waiting for this one,
// that the answer will be short. Say so, and the router can keep the
// conversation where its cache is warm and let the urgent call go first:
//
//	e := nvext.New(
//		nvext.Priority(5),                         // a person is waiting
//		nvext.OSL(256),                            // about 256 tokens will come back
//		nvext.PrefixID("run-42/planner"),          // calls with this id share a prompt prefix
//		nvext.Remaining(4),                        // on the first call: four more follow
//		nvext.InterArrival(250*time.Millisecond),  // usually this far apart
//		nvext.CacheTTL(2*time.Minute),             // keep the prefix that long
//		nvext.Extra("timing", "worker_id"),        // tell me how it went
//	)
//
// json.Marshal(e) is the value of the request's "nvext" member; most SDKs have
// a way to add one (extra_body in Python). The answer's nvext decodes into
// [Response].
//
// A hint can help and can not hurt. A hint that makes no sense is counted and
// ignored, a key that nobody knows is carried along, and a request without any
// nvext is served like every other. Only where more depends on a field than a
// guess, as on a pin or a priority, a value of the wrong JSON type is refused, with
// a [FieldError] that names the field. [Parse] says which are never refused.
//
// # Priority
//
// A higher priority is more urgent. While requests wait in the router's queue,
// each unit is one second of head start; engines get the same order whatever
// their own convention is. A negative priority gives no head start and ranks
// below the default in the engine.
//
// NeMo Agent Toolkit before 1.8 counts the other way round: it sends
// priority = maximum − sensitivity, so its most urgent calls carry the smallest
// number, next to a latency_sensitivity that points the right way. Such a
// client cannot be told from the request; a server that serves one asks for
// [AgentHints.PriorityJump] with preferSensitivity set.
//
// # On the server
//
// [Parse] reads the member, [ApplyHeaders] lays header overrides and the older
// carriers of hints (annotations, x-prefix-* and x-nat-* headers) over it,
// [ApplyMeta] collects request metadata, and the methods of [NvExt] and
// [AgentHints] answer what routing wants to know. [Response.AppendJSON] writes
// the reply; [Routing] explains a placement in the same words to the client,
// the trace and the dashboard.
//
// Values of this package are plain data: safe to read from many goroutines,
// not safe to change while others read.
package nvext
