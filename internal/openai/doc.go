// Package openai reads and edits the OpenAI wire protocol without decoding it.
//
// A request body stays the bytes the client sent. [ParseObject] finds the
// members of a JSON object in one pass, [Request] is the view of a chat or
// completion body built on it, and [Object.Edit] adds, replaces or removes a
// member while every other byte stays as it was: key order changes prompt
// tokens, so nothing is ever re-marshalled. [ParseRequest] checks what the
// control plane itself needs; [Request.Strict] checks the rest for those who
// want faults found here and not by the engine.
//
// A response stream is read by [Scanner], which cuts server-sent events and
// leaves their bytes alone; [ParseChunk] tells content, finish, usage and error
// apart by parsing. Chunks are built only for the simulator (chunk.go) and for
// what the frontend itself has to say.
//
// [Error] is the one shape of failure that reaches a client, with one table of
// conditions behind it.
//
// The package holds no state and opens no connection.
package openai
