package simserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize"
)

// version is what the version route says. No release of vLLM is called that.
const version = "0.0.0-sim"

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if s.life.Err() != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (s *Server) serveVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte(`{"version":"`+version+`"}`))
}

// serveModels lists the one model, with what a router wants to know about the
// engine under a key of its own.
func (s *Server) serveModels(w http.ResponseWriter, _ *http.Request) {
	b := append([]byte(nil), `{"object":"list","data":[{"id":`...)
	b = openai.AppendString(b, s.cfg.Model)
	b = fmt.Appendf(b, `,"object":"model","created":%d,"owned_by":"stator","max_model_len":%d`, s.created, s.cfg.ContextLength)
	b = fmt.Appendf(b, `,"stator":{"engine":"sim","tokenizer":"%s","block_size":%d,"total_kv_blocks":%d,"max_num_batched_tokens":%d,"ranks":%d`,
		tokenize.Bytes{}.Fingerprint(), s.cfg.BlockSize, s.cfg.TotalBlocks, s.cfg.MaxBatchedTokens, s.cfg.Ranks)
	if s.cfg.Worker != 0 {
		b = fmt.Appendf(b, `,"worker":%d`, s.cfg.Worker)
	}
	b = append(b, "}}]}"...)
	writeJSON(w, http.StatusOK, b)
}

// serveMetrics tells the load of each rank under vLLM's names.
func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	running := append([]int(nil), s.mu.ranks...)
	s.mu.Unlock()
	model := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s.cfg.Model)

	var b []byte
	gauge := func(name, help string, value func(rank int) int) {
		b = fmt.Appendf(b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
		for rank := range running {
			b = fmt.Appendf(b, "%s{engine=\"%d\",model_name=\"%s\"} %d\n", name, rank, model, value(rank))
		}
	}
	gauge("vllm:num_requests_running", "Requests being answered.", func(rank int) int { return running[rank] })
	gauge("vllm:num_requests_waiting", "Requests waiting to be answered.", func(int) int { return 0 })

	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Write(b)
}

// serveTokenize gives the ids of a text or of a chat, as generation would see
// them.
func (s *Server) serveTokenize(w http.ResponseWriter, r *http.Request) {
	f, bad := readObject(w, r)
	if bad != nil {
		writeError(w, bad)
		return
	}
	ids, bad := s.tokenizeIDs(f)
	if bad != nil {
		writeError(w, bad)
		return
	}
	b := fmt.Appendf(nil, `{"count":%d,"max_model_len":%d,"tokens":`, len(ids), s.cfg.ContextLength)
	b = openai.AppendTokenIDs(b, ids)
	b = append(b, `,"token_strs":`...)
	if f.boolean("return_token_strs", false) {
		b = append(b, '[')
		for i, id := range ids {
			if i > 0 {
				b = append(b, ',')
			}
			b = openai.AppendString(b, tokenTexts[id])
		}
		b = append(b, ']')
	} else {
		b = append(b, "null"...)
	}
	if f.err != nil {
		writeError(w, f.err)
		return
	}
	writeJSON(w, http.StatusOK, append(b, '}'))
}

func (s *Server) tokenizeIDs(f *fields) ([]uint32, *apiError) {
	if err := s.checkModel(f); err != nil {
		return nil, err
	}
	v := f.Get("prompt")
	if !v.Present() {
		ids, err := s.chatIDs(f)
		if err == nil {
			err = f.err
		}
		return ids, err
	}
	t, ok := v.Text()
	if !ok {
		return nil, badField("prompt", "expected a string, got %s", got(v))
	}
	ids, err := tokenize.Bytes{}.Encode(nil, []byte(t), true /* special */)
	if err != nil {
		return nil, badField("prompt", "%v", err)
	}
	return ids, nil
}

func (s *Server) serveDetokenize(w http.ResponseWriter, r *http.Request) {
	f, bad := readObject(w, r)
	if bad == nil {
		bad = s.checkModel(f)
	}
	if bad != nil {
		writeError(w, bad)
		return
	}
	var ids []uint32
	if v := f.Get("tokens"); len(v) != 2 { // not []
		if ids, bad = tokenIDs("tokens", v); bad != nil {
			writeError(w, bad)
			return
		}
	}
	p := prompt{ids: ids}
	b := append([]byte(nil), `{"prompt":`...)
	b = openai.AppendString(b, p.appendText(nil))
	writeJSON(w, http.StatusOK, append(b, '}'))
}
