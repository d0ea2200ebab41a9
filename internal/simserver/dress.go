package simserver

import (
	"fmt"
	"net/http"
	"time"

	"github.com/stator-ai/stator/internal/simengine"
)

// Dress is the engine that a server looks like to whoever talks to it: its routes, what
// it says about itself, its errors and the shape of its answers.
type Dress string

// The dresses.
const (
	// Plain has the OpenAI routes, and says that it is a simulated engine.
	Plain         Dress = ""
	DressVLLM     Dress = "vllm"
	DressSGLang   Dress = "sglang"
	DressLlamaCpp Dress = "llamacpp"
	// DressTRTLLM is TensorRT-LLM as trtllm-serve. Its scheduler is modelled as
	// vLLM's.
	DressTRTLLM Dress = "trtllm"
)

// Dresses returns the names of the engines that a server can look like.
func Dresses() []string {
	return []string{string(DressVLLM), string(DressSGLang), string(DressLlamaCpp), string(DressTRTLLM)}
}

// kind returns the engine that is modelled under a dress; empty for any.
func (d Dress) kind() simengine.Kind {
	switch d {
	case DressVLLM, DressTRTLLM:
		return simengine.VLLM
	case DressSGLang:
		return simengine.SGLang
	case DressLlamaCpp:
		return simengine.LlamaCpp
	default:
		return ""
	}
}

// face is how an engine looks over HTTP, where engines differ.
type face interface {
	// route returns the methods and the handler of a path besides those that all
	// have.
	route(s *Server, path string) (methods string, handle handler)
	// appendCard appends the entry of a model among those served. An adapter has a
	// parent.
	appendCard(b []byte, s *Server, name, parent string) []byte
	// appendError appends the body of an answer that is an error.
	appendError(b []byte, e *apiError) []byte
	// appendStreamError appends the event that an answer breaks off with; false if
	// the connection is cut instead.
	appendStreamError(b []byte, e *apiError) ([]byte, bool)
	// parse reads what only this engine has in a request for text.
	parse(s *Server, r *request, f *fields, h http.Header)
	// metrics answers the metrics route.
	metrics(s *Server, w http.ResponseWriter)
	traits() *traits
}

// traits are the ways of an engine that can be told in a word.
type traits struct {
	version   string
	anyModel  bool // the name of the model in a request does not count
	noRanks   bool // it cannot be told a rank
	noCards   bool // adapters are not listed as models
	healthFor time.Duration

	// usageDefault says that streams have a usage unless told otherwise.
	usageDefault   bool
	doneAfterError bool
	alwaysCached   bool // usage tells of cached tokens without being told to
	// unbounded completions go on to the end of the context.
	unbounded bool

	// How long it takes to notice that a client has gone, from a streamed answer and
	// from one that is not. nextToken notices with the next token at the latest.
	noticeStream, noticeUnary time.Duration
	nextToken                 bool

	roleFirst     bool   // chats begin with a chunk that has only the role
	nullRole      bool   // whose content is null
	finishApart   bool   // of chats: the finish reason comes in a chunk of its own
	finishText    bool   // of completions: the same
	stop          string // member that tells what ended the answer, empty for none
	stopToken     bool   // which may be the token that did
	usageNull     bool   // chunks without a usage say so
	choicesFirst  bool   // of an object's members
	tokenIDs      bool   // it gives token ids
	chatStreamIDs bool   // also in the chunks of a chat
	reasoning     bool   // usage tells of reasoning tokens

	detokenized string // member of the detokenize route's answer

	ping time.Duration // of silence before a stream shows that it is alive; 0 for never
}

// newFace returns the face of a dress.
func newFace(d Dress) face {
	switch d {
	case DressVLLM:
		return vllmFace{}
	case DressSGLang:
		return sglangFace{}
	case DressLlamaCpp:
		return llamaFace{}
	case DressTRTLLM:
		return trtllmFace{}
	default:
		return plainFace{}
	}
}

// dressed fills in what the dress decides and checks the rest. It comes before the
// other defaults.
func (c *Config) dressed() error {
	switch c.Dress {
	case Plain, DressVLLM, DressSGLang, DressLlamaCpp, DressTRTLLM:
	default:
		return fmt.Errorf("simserver: dress: expected one of %q, got %q", Dresses(), c.Dress)
	}
	if kind := c.Dress.kind(); kind != "" {
		if c.Kind != "" && c.Kind != kind {
			return fmt.Errorf("simserver: kind: expected %s or none with the dress %s, got %s", kind, c.Dress, c.Kind)
		}
		c.Kind = kind
	}
	if c.Dress == DressTRTLLM && c.Publish != nil && c.Publish.Format == "" {
		p := *c.Publish
		p.Format = "trtllm"
		c.Publish = &p
	}
	for i := range c.Faults {
		if err := c.Faults[i].check(); err != nil {
			return fmt.Errorf("simserver: %w", err)
		}
	}
	if c.Dress != DressLlamaCpp {
		if c.Slots != 0 {
			return fmt.Errorf("simserver: slots: expected with the dress %s only", DressLlamaCpp)
		}
		return nil
	}
	if c.Slots == 0 {
		c.Slots = defaultSlots
	}
	if c.ContextLength == 0 {
		c.ContextLength = defaultContext
	}
	if c.MaxBatchedTokens == 0 {
		c.MaxBatchedTokens = 2048
	}
	if c.BlockSize == 0 {
		c.BlockSize = 1
	}
	switch {
	case c.Slots < 1 || c.Slots > maxSlots:
		return fmt.Errorf("simserver: slots: expected a number from 1 to %d, got %d", maxSlots, c.Slots)
	case c.ContextLength < 2 || c.ContextLength > MaxBlocks/c.Slots:
		return fmt.Errorf("simserver: context length: expected a number from 2 to %d with %d slots, got %d", MaxBlocks/c.Slots, c.Slots, c.ContextLength)
	case c.BlockSize != 1:
		return fmt.Errorf("simserver: block size: expected 1 with the dress %s, got %d", c.Dress, c.BlockSize)
	case c.TotalBlocks != 0:
		return fmt.Errorf("simserver: total blocks: expected slots and a context length with the dress %s", c.Dress)
	case c.Ranks > 1:
		return fmt.Errorf("simserver: ranks: expected 1 with the dress %s, got %d", c.Dress, c.Ranks)
	case c.Engine != nil && c.Engine.MaxSeqs != 0:
		return fmt.Errorf("simserver: engine: max seqs: expected slots with the dress %s", c.Dress)
	case c.PriorityScheduling:
		return fmt.Errorf("simserver: priority scheduling: expected another dress than %s", c.Dress)
	}
	c.TotalBlocks = c.Slots * c.ContextLength
	return nil
}

const (
	defaultSlots   = 4
	maxSlots       = 256
	defaultContext = 32768
)

// blockSize returns the number of tokens in a block as the server states it.
func (s *Server) blockSize() int {
	f, wrong := s.faults.on(FaultBlockSize)
	switch {
	case wrong && f.Size > 0:
		return f.Size
	case wrong:
		return 2 * s.cfg.BlockSize
	}
	return s.cfg.BlockSize
}

// fail answers a request with an error in the engine's shape.
func (s *Server) fail(w http.ResponseWriter, e *apiError) {
	writeJSON(w, e.status, s.face.appendError(nil, e))
}

// priority returns how urgent a request is, from what it says, with more being more.
func (s *Server) priority(f *fields, lowFirst bool) int64 {
	n, ok := f.integer("priority", minPriority, maxPriority)
	switch {
	case !s.cfg.PriorityScheduling:
		return 0
	case lowFirst:
		return -n
	case !ok:
		return minPriority // what says nothing comes last
	}
	return n
}

// Priorities are 64-bit numbers, of which the least has no opposite.
const (
	maxPriority = 1<<63 - 1
	minPriority = -maxPriority
)

// plainFace is that of a simulated engine that says so.
type plainFace struct{}

var plainTraits = traits{version: version, tokenIDs: true, chatStreamIDs: true, doneAfterError: true, detokenized: "prompt"}

func (plainFace) traits() *traits { return &plainTraits }

func (plainFace) route(s *Server, path string) (string, handler) {
	switch path {
	case "/health", "/ping":
		return http.MethodGet, (*Server).serveHealth
	case "/version":
		return http.MethodGet, (*Server).serveVersion
	case "/tokenize":
		return http.MethodPost, (*Server).serveTokenize
	case "/detokenize":
		return http.MethodPost, (*Server).serveDetokenize
	}
	if s.cfg.Kind == simengine.SGLang {
		switch path {
		case "/health_generate":
			return http.MethodGet, (*Server).serveHealth
		case "/server_info", "/get_server_info":
			return http.MethodGet, (*Server).serveServerInfo
		}
	}
	return "", nil
}

func (plainFace) appendCard(b []byte, s *Server, name, parent string) []byte {
	return s.appendCard(b, name, parent)
}

func (plainFace) appendError(b []byte, e *apiError) []byte { return appendError(b, e) }

func (plainFace) appendStreamError(b []byte, e *apiError) ([]byte, bool) {
	return appendError(b, e), true
}

func (plainFace) parse(*Server, *request, *fields, http.Header) {}

func (plainFace) metrics(s *Server, w http.ResponseWriter) { s.prometheus(w, s.cfg.Kind) }
