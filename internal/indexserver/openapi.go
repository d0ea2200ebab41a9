package indexserver

import (
	_ "embed"
	"net/http"
)

// openapiJSON is the description of the HTTP API, an OpenAPI 3.1 document. It is
// written by hand; tests hold it against the code.
//
//go:embed openapi.json
var openapiJSON []byte

func describe(w http.ResponseWriter, _ *http.Request) error {
	replyRaw(w, http.StatusOK, openapiJSON)
	return nil
}
