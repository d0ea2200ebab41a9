// Package frontend is the HTTP face: the OpenAI API in front of the router.
//
// The path of one request is generate.go, from top to bottom: decode, lay the
// headers over nvext (ext.go), look the model up, tokenize if something depends on
// it (prompt.go), tell the router what it must know (place.go), place, open, relay,
// account. tokens.go knows where the tokens of a model come from, encode.go gets
// them. relay.go copies a stream, unary.go a whole answer; both watch only for what
// must be known: first token, finish, usage, errors. learn.go adds to what clients expect of
// their requests what can be inferred, if that is wanted. usage.go hides from a stream the usage
// that only we asked for. errors.go turns what went wrong
// into what the client is told. row.go notes along the way what goes into the request
// trace, if there is one. Whatever happens, call.close releases what a request holds, and
// aborts.go tells the engine if it still works on what nobody wants.
//
// passage.go is the same way for requests that are not looked into: embeddings, audio and
// whatever else engines serve. media.go has the prompts with images in them.
//
// Who sends requests to engines without us can have them placed: service.go is the
// router as a service, loads.go and decisions.go show what it knows and did, form.go
// reads what they are asked. engines.go lists the engines and takes those that announce
// themselves.
//
// Bytes pass through. The body that reaches the engine is the client's with
// single members changed, and the answer that reaches the client is the engine's,
// apart from annotations, errors, usage that is hidden, and the chunk that carries nvext.
package frontend
