// Package chat renders the prompt of a chat request with the model's own chat
// template, as the engine that will run the request renders it.
//
// A template sees messages, tools and some further variables. Engines do not
// hand it the request's messages as they are: they flatten or wrap content,
// parse the arguments of tool calls, keep some keys and drop others, and each
// does so in its own way. The [Dialect] of a [Config] says whose way is followed,
// so that the same request gives the same text here and there:
//
//   - [VLLM] renders as vLLM's OpenAI server does.
//   - [SGLang] renders as SGLang's does.
//   - [HF] hands messages and tools to the template as they came, which is what
//     transformers' apply_chat_template does.
//   - [LlamaCpp] renders as llama.cpp's server does with its flags for templates and
//     reasoning left alone. Templates that it has code for are refused with
//     [ErrInexact].
//
// [ParseConfig] reads the files that models come with, [New] compiles their
// templates, and [Template.Render] is the rest. Templates run in an interpreter
// with bounds on steps, output and depth.
//
// Everything in the prompt counts as written by the template: a special token
// spelled in a user's message is that token, because that is what the engines
// make of it.
//
// What only a running engine knows is not guessed: where a model wants its own
// placeholder for an image in plain text, rendering fails with [ErrMedia]. Some
// models have no template because their engines build prompts in code; for those
// New returns [ErrNoTemplate].
package chat
