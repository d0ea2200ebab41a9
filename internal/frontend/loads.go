package frontend

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
)

// loadsBody is what the ranks of a model would have to do with one more request.
type loadsBody struct {
	Method           string     `json:"method,omitempty"`
	Loads            []rankLoad `json:"loads"`
	PendingCount     int        `json:"pending_count"`
	PendingISLTokens int        `json:"pending_isl_tokens"`
}

type rankLoad struct {
	WorkerID      uint64 `json:"worker_id"`
	DPRank        uint32 `json:"dp_rank"`
	PrefillTokens int    `json:"potential_prefill_tokens"`
	DecodeBlocks  int    `json:"potential_decode_blocks"`
	Requests      int    `json:"active_requests"`
}

func (s *Server) loadsOf(q *router.Request) loadsBody {
	loads, requests, tokens := s.router.PotentialLoads(q)
	body := loadsBody{Loads: make([]rankLoad, len(loads)), PendingCount: requests, PendingISLTokens: tokens}
	for i, l := range loads {
		body.Loads[i] = rankLoad{l.Worker, l.Rank, l.PrefillTokens, l.DecodeBlocks, l.Requests}
	}
	return body
}

// presentLoads answers with what the ranks of a model have to do now.
func (s *Server) presentLoads(w http.ResponseWriter, r *http.Request, _ *Key) {
	m, err := s.servedModel(r.URL.Query().Get("model"))
	if err != nil {
		s.answerError(w, err)
		return
	}
	reply(w, http.StatusOK, s.loadsOf(&router.Request{Model: m}))
}

// potentialLoads answers with what they would have to do with a prompt more.
func (s *Server) potentialLoads(w http.ResponseWriter, r *http.Request, _ *Key) {
	f := s.readForm(w, r)
	defer f.close()
	s.answerLoads(w, f, "")
}

// answerLoads answers for the prompt in a form, which may come with settings of its
// own. The method is that of the router service, if it was asked.
func (s *Server) answerLoads(w http.ResponseWriter, f *form, method string) {
	q := f.prompt()
	if raw := f.Get("router_config_override"); raw.Present() && f.err == nil {
		q.Override, f.err = parseOverride("router_config_override", raw)
	}
	if f.err != nil {
		s.answerError(w, f.err)
		return
	}
	body := s.loadsOf(&q)
	body.Method = method
	reply(w, http.StatusOK, body)
}

// prompt reads a model and a prompt of it in tokens. Two names are known for tokens
// and for salt, since clients have both.
func (f *form) prompt() (q router.Request) {
	q.Model = f.model()
	field := "tokens"
	ids, given := f.tokens(field)
	if !given {
		field = "token_ids"
		ids, given = f.tokens(field)
	}
	if !given {
		f.fail(openai.CodeMissing, "tokens", "an array of token ids")
	}
	salt := cmp.Or(f.text("cache_namespace"), f.text("cache_salt"))
	if f.err != nil {
		return q
	}
	adapter := ""
	if q.Model.Adapter {
		adapter = q.Model.ID
	}
	q.Tokens, q.PromptTokens = ids, len(ids)
	q.HashSeed, q.Tenant = kv.HashSeed(adapter, salt), salt
	size := q.Model.BlockSize
	if objects := f.objects("block_mm_infos", len(ids), size); objects != nil && f.take(blockBytes*(len(ids)/size)) {
		q.Blocks = kv.AppendBlocksMM(make([]kv.Block, 0, len(ids)/size), q.HashSeed, ids, size, objects)
		q.BlockSize = size
	}
	return q
}

// blockBytes is what the hashes of a block take.
const blockBytes = 16

// answerError answers a request to the router itself that failed.
func (s *Server) answerError(w http.ResponseWriter, err error) {
	var e *openai.Error
	if !errors.As(err, &e) {
		e = &openai.Error{Code: openai.CodeInternal, Message: "internal error", Err: err}
	}
	s.fail(w, e)
}
