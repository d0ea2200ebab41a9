package simserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize"
)

// version is what the version route says. No release of vLLM is called that.
const version = "0.0.0-sim"

// serveHealth says whether the engine is alive: with a status, and nothing else.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	if s.wait(r, s.face.traits().healthFor) && !s.ill(r) {
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
}

// servePing is serveHealth without what that takes the engine.
func (s *Server) servePing(w http.ResponseWriter, r *http.Request) {
	if s.ill(r) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// wait waits for a while and reports whether client and engine are still there.
func (s *Server) wait(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-s.life.Done():
	}
	return false
}

// ill reports whether the engine is not well, as late as it is to say so.
func (s *Server) ill(r *http.Request) bool {
	if f, slow := s.faults.on(FaultSlowHealth); slow && !s.wait(r, f.For) {
		return true
	}
	_, dead := s.faults.on(FaultUnhealthy)
	return dead || s.life.Err() != nil
}

func (s *Server) serveVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte(`{"version":"`+s.face.traits().version+`"}`))
}

// serveModels lists the model and its adapters, with what a router wants to know
// about the engine under a key of its own.
func (s *Server) serveModels(w http.ResponseWriter, _ *http.Request) {
	b := append([]byte(nil), `{"object":"list","data":[`...)
	b = s.face.appendCard(b, s, s.cfg.Model, "")
	if !s.face.traits().noCards {
		for _, name := range s.cfg.Adapters {
			b = s.face.appendCard(append(b, ','), s, name, s.cfg.Model)
		}
	}
	writeJSON(w, http.StatusOK, append(b, "]}"...))
}

// appendCard appends the entry of a model. An adapter has a parent.
func (s *Server) appendCard(b []byte, name, parent string) []byte {
	b = append(b, `{"id":`...)
	b = openai.AppendString(b, name)
	b = fmt.Appendf(b, `,"object":"model","created":%d,"owned_by":"stator"`, s.life.now.Load().began.Unix())
	if parent != "" {
		b = append(b, `,"root":`...)
		b = openai.AppendString(b, name)
		b = append(b, `,"parent":`...)
		b = openai.AppendString(b, parent)
	}
	b = fmt.Appendf(b, `,"max_model_len":%d`, s.cfg.ContextLength)
	b = fmt.Appendf(b, `,"stator":{"engine":"sim","tokenizer":"%s","block_size":%d,"total_kv_blocks":%d,"max_num_batched_tokens":%d,"ranks":%d`,
		s.vocab.model.Fingerprint(), s.blockSize(), s.cfg.TotalBlocks, s.cfg.MaxBatchedTokens, s.cfg.Ranks)
	if s.cfg.Worker != 0 {
		b = fmt.Appendf(b, `,"worker":%d`, s.cfg.Worker)
	}
	return append(b, "}}"...)
}

// serveServerInfo tells the settings of the engine as SGLang does.
func (s *Server) serveServerInfo(w http.ResponseWriter, _ *http.Request) {
	b := append([]byte(nil), `{"served_model_name":`...)
	b = openai.AppendString(b, s.cfg.Model)
	b = fmt.Appendf(b, `,"version":"%s","context_length":%d,"page_size":%d,"max_total_num_tokens":%d,"chunked_prefill_size":%d,"dp_size":%d}`,
		version, s.cfg.ContextLength, s.blockSize(), s.cfg.TotalBlocks*s.cfg.BlockSize, s.cfg.chunk(), s.cfg.Ranks)
	writeJSON(w, http.StatusOK, b)
}

// serveTokenize gives the ids of a text or of a chat, as generation would see
// them.
func (s *Server) serveTokenize(w http.ResponseWriter, r *http.Request) {
	sc := newScratch()
	defer sc.free()
	if bad := sc.read(w, r); bad != nil {
		s.fail(w, bad)
		return
	}
	f := &sc.fields
	ids, bad := s.tokenizeIDs(r.Context(), sc)
	if bad != nil {
		s.fail(w, bad)
		return
	}
	b := fmt.Appendf(nil, `{"count":%d,"max_model_len":%d,"tokens":`, len(ids), s.cfg.ContextLength)
	b = openai.AppendTokenIDs(b, ids)
	b = append(b, `,"token_strs":`...)
	if f.boolean("return_token_strs", false) {
		b = append(b, '[')
		var spelled []byte
		for i, id := range ids {
			if i > 0 {
				b = append(b, ',')
			}
			spelled = s.vocab.appendSpelling(spelled[:0], id)
			b = openai.AppendString(b, spelled)
		}
		b = append(b, ']')
	} else {
		b = append(b, "null"...)
	}
	if f.err != nil {
		s.fail(w, f.err)
		return
	}
	writeJSON(w, http.StatusOK, append(b, '}'))
}

func (s *Server) tokenizeIDs(ctx context.Context, sc *scratch) ([]uint32, *apiError) {
	f := &sc.fields
	if _, _, err := s.checkModel(f); err != nil {
		return nil, err
	}
	done, bad := sc.takeTurn(ctx)
	if bad != nil {
		return nil, bad
	}
	defer done()
	v := f.Get("prompt")
	if !v.Present() {
		p, err := s.chatPrompt(f, tokenize.Hashing{})
		if err == nil {
			err = f.err
		}
		return p.ids, err
	}
	t, ok := v.Text()
	if !ok {
		return nil, badField("prompt", "expected a string, got %s", got(v))
	}
	r, err := s.vocab.model.Complete([]byte(t), !f.boolean("add_special_tokens", true), tokenize.Hashing{})
	if err != nil {
		return nil, badField("prompt", "%v", err)
	}
	return r.IDs, nil
}

func (s *Server) serveDetokenize(w http.ResponseWriter, r *http.Request) {
	sc := newScratch()
	defer sc.free()
	bad := sc.read(w, r)
	f := &sc.fields
	if bad == nil {
		_, _, bad = s.checkModel(f)
	}
	if bad != nil {
		s.fail(w, bad)
		return
	}
	var ids []uint32
	if v := f.Get("tokens"); len(v) != 2 { // not []
		if ids, bad = s.tokenIDs("tokens", v); bad != nil {
			s.fail(w, bad)
			return
		}
	}
	b := append([]byte(nil), `{"`+s.face.traits().detokenized+`":`...)
	b = openai.AppendString(b, s.vocab.tokens.DecodeText(nil, ids, false /* skipSpecial */))
	writeJSON(w, http.StatusOK, append(b, '}'))
}
