package frontend

import _ "embed"

// openapiJSON is the description of the HTTP API, an OpenAPI 3.1 document. It is
// written by hand; tests hold it against the code.
//
//go:embed openapi.json
var openapiJSON []byte

// docsHTML is a page that shows openapi.json to people. It loads nothing else.
//
//go:embed docs.html
var docsHTML []byte
