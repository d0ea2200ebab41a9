// Package simengine models one rank of an LLM engine: what it computes in each
// forward pass, what its KV cache holds, and how long the pass takes.
//
// An [Engine] is a step function. [Engine.Receive] puts a request in its queue,
// [Engine.Step] runs one pass over what is there and returns a [Pass]: how long
// it took, which requests got a token at its end, which blocks entered or left
// the cache. The engine has no clock, goroutine or socket and draws no chance
// that is not in its configuration, so the same calls give the same passes. Who
// drives it owns the time: a server sleeps for the duration of a pass, a replay
// adds it up.
//
// Three schedulers are modelled. [VLLM] keeps blocks of tokens with their content
// hash, reuses equal prefixes, computes long prompts in chunks beside running
// answers, and takes blocks away from running requests when there are too few.
// [SGLang] keeps a radix tree of token pages and reserves room for answers before
// it admits a prompt. [LlamaCpp] runs each request in a slot that keeps what it
// computed for the next. How long a pass takes is a [Timing]: fitted to measurements of
// a real engine, read from a table, or fixed.
//
// An engine with several data-parallel ranks is several Engines: each has its own
// cache and its own queue.
package simengine
