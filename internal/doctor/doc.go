// Package doctor looks at engines and says what stands in the way of their best use.
//
// [Examine] goes to each engine as the router would: it finds out what it is, sends it
// a few small requests, and listens to what it publishes about its cache. What an
// engine says is held against what it does, and both against what is configured: the
// sizes of blocks, the tokens of prompts, the hashes of events, what answers tell of
// the cache, whether a request ends when its client has gone. Each of these is a
// [Check] in the [Report].
//
// A check fails where something is not as it was said, so that requests would be placed
// wrongly. It warns where the engine works but gives away something, and then advises
// how to get it. It is skipped where nothing can be found out.
package doctor
