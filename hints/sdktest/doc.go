// Package sdktest tests package hints with the clients that agents in Go are written with:
// the SDKs of OpenAI and Anthropic, LangChain's, and plain ones. It stands apart because
// these are large.
package sdktest
