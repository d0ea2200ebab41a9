package frontend

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/nvext"
)

type decisionBody struct {
	Time    time.Time      `json:"time"`
	Routing *nvext.Routing `json:"routing"`
}

// How many decisions are shown unless a number is given, and at most: with many
// workers each is long.
const (
	defaultDecisions = 50
	maxDecisions     = 1000
)

// decisions answers with the latest placements, and why they were made.
func (s *Server) decisions(w http.ResponseWriter, r *http.Request, _ *Key) {
	q := r.URL.Query()
	limit := defaultDecisions
	if text := q.Get("limit"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n == 0 || n > maxDecisions {
			s.fail(w, badQuery("limit", fmt.Sprintf("a whole number from 1 to %d", maxDecisions), text))
			return
		}
		limit = int(n)
	}
	model, request := q.Get("model"), q.Get("request_id")
	if m, err := s.router.Lookup(model); err == nil {
		model = m.ID // an adapter has two names
	}
	var worker uint64
	if text := q.Get("worker_id"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n == 0 {
			s.fail(w, badQuery("worker_id", "the id of a worker, a whole number from 1", text))
			return
		}
		worker = n
	}
	decisions := s.router.Decisions(limit, func(m, id string, chosen uint64) bool {
		return (model == "" || m == model) && (request == "" || id == request) && (worker == 0 || chosen == worker)
	})
	w.Header().Set("Content-Type", "application/json")
	w.Write([]byte(`{"decisions":[`)) // one by one: together they may be large
	for i, d := range decisions {
		if i > 0 {
			w.Write([]byte(","))
		}
		text, err := json.Marshal(decisionBody{d.At.UTC(), d.Routing})
		if err != nil {
			panic(err) // our own types
		}
		if _, err := w.Write(text); err != nil {
			return
		}
	}
	w.Write([]byte("]}\n"))
}

func badQuery(name, expected, got string) *openai.Error {
	return &openai.Error{Code: openai.CodeInvalidValue, Param: name,
		Message: fmt.Sprintf("%s: expected %s, got %q", name, expected, short(got))}
}
