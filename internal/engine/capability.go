package engine

import (
	"context"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
)

// Loader is the capability of engines that report their load.
type Loader interface {
	// Load returns one entry per rank that has something to say.
	Load(ctx context.Context) ([]Load, error)
}

// Sparing is the capability of a [Loader] that must not be asked too often.
type Sparing interface {
	// LoadEvery returns the least time between two questions.
	LoadEvery() time.Duration
}

// TokenizeRequest asks for the tokens of a prompt. The engine does not keep it.
type TokenizeRequest struct {
	Model string         // as the engine serves it
	Body  *openai.Object // the client's body, of which the engine takes what decides the prompt
	// Prompt is the text of a completion, a JSON string; nil for a chat.
	Prompt openai.Value
}

// TokenizeResult is what an engine made of a prompt.
type TokenizeResult struct {
	IDs  []uint32
	Text []byte // the formatted prompt of a chat, nil when the engine does not say
	// MaxModelLen is the longest sequence as the route states it, 0 when it does
	// not. Some engines state what the model was made for and not what they serve.
	MaxModelLen int
}

// Tokenizer is the capability of engines that give the tokens of a prompt without
// running it.
type Tokenizer interface {
	// Tokenize returns the tokens that the request would have.
	Tokenize(ctx context.Context, r *TokenizeRequest) (*TokenizeResult, error)
	// Resting reports whether the engine has not answered a while ago and would
	// not be asked now.
	Resting() bool
}

// EventPoller is the capability of engines that are asked for what became of their
// caches.
type EventPoller interface {
	// PollEvents returns what became of the caches since it was asked last, in the
	// order of each rank, and waits a while if there is nothing. Who asks takes the
	// events away from everybody else. The batches are the caller's; those of a rank
	// are numbered by the poller from the engine's own numbers, so that a gap shows.
	// The worker in their sources is 0.
	PollEvents(ctx context.Context) ([]*kv.Batch, error)
	// BlockSize returns how many tokens a block has, as far as the server has told by
	// now; 0 if it has not.
	BlockSize() int
}

// Aborter is the capability of engines that are told that a request is not wanted any
// more, because they notice too late that its connection is gone.
type Aborter interface {
	// Abort ends the request with that [Wishes.ID]. One that is not there is no
	// error.
	Abort(ctx context.Context, id string) error
}

// Canary is the capability of engines that can be asked for a token, to see whether
// they still compute.
type Canary interface {
	// Canary has the engine compute one token for a model.
	Canary(ctx context.Context, model string) error
}
