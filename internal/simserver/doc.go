// Package simserver is a simulated engine behind HTTP, plain or in the dress of a real
// one: vLLM, SGLang, llama.cpp or TensorRT-LLM.
//
// A [Server] answers the OpenAI routes with made-up English text, streamed token
// by token, and the routes by which a router gets to know an engine: models,
// health, version, tokenize, metrics. It needs no model file: a [Vocabulary] with its
// chat template is built in, that of the Qwen3 models unless one token per byte is
// asked for. Prompts are the tokens that a real engine would make of them, and
// answers the tokens that the tokenizer would make of their text, so that a chat that
// goes on begins with the tokens of its turns before.
//
// A plain server says that it is a simulated engine. Of the kind SGLang it has SGLang's
// scheduler, metrics and server info; the OpenAI routes, their errors and the rank
// header are vLLM's in either kind. With a [Dress] it cannot be told from that engine by
// its routes, what it says about itself, its errors, the shape of its answers, when it
// notices that a client has gone, and, with [PublishConfig], its events.
//
// A [Fault] makes something go wrong on demand, from the start, by [Server.Fault] or by
// the route /sim/fault, always in the same way. [Server.Restart] has the engine die and
// begin anew in the same place.
//
// The text is a pure function of the seed and the tokens before it. Two servers
// with the same seed and vocabulary give the same answer, and one that is handed a
// prompt with the beginning of its answer writes the rest of it, byte for byte.
// Sampling parameters such as temperature are accepted and change nothing.
//
// When tokens come is a matter of its own. With an engine model behind it
// ([Config.Engine], package simengine), the server has a batch of requests per
// pass, a queue, and a KV cache whose contents it reports as events and in the
// usage of each answer; each rank has a goroutine, while it has work, that runs
// pass after pass and sleeps for as long as each takes. Without a model every
// request is on its own and has its tokens at fixed times. With a [Clock] time is
// virtual, and nothing sleeps.
//
// A server runs on a socket like any handler, or on a [MemListener], which needs
// none and lets tests run in virtual time. There is no goroutine per request
// besides those of net/http.
package simserver
