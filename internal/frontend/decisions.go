package frontend

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/nvext"
)

type decisionsBody struct {
	Decisions []decisionBody `json:"decisions"`
}

type decisionBody struct {
	Time    time.Time      `json:"time"`
	Routing *nvext.Routing `json:"routing"`
}

// defaultDecisions is how many decisions are shown unless a number is given.
const defaultDecisions = 50

// decisions answers with the latest placements, and why they were made.
func (s *Server) decisions(w http.ResponseWriter, r *http.Request, _ *Key) {
	q := r.URL.Query()
	limit := defaultDecisions
	if text := q.Get("limit"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n == 0 {
			s.fail(w, badQuery("limit", "a whole number from 1", text))
			return
		}
		limit = int(min(n, math.MaxInt))
	}
	model, request := q.Get("model"), q.Get("request_id")
	var worker uint64
	if text := q.Get("worker_id"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n == 0 {
			s.fail(w, badQuery("worker_id", "the id of a worker, a whole number from 1", text))
			return
		}
		worker = n
	}
	body := decisionsBody{Decisions: []decisionBody{}}
	for _, d := range s.router.Decisions(limit, func(m, id string, chosen uint64) bool {
		return (model == "" || m == model) && (request == "" || id == request) && (worker == 0 || chosen == worker)
	}) {
		body.Decisions = append(body.Decisions, decisionBody{d.At.UTC(), d.Routing})
	}
	reply(w, http.StatusOK, body)
}

func badQuery(name, expected, got string) *openai.Error {
	return &openai.Error{Code: openai.CodeInvalidValue, Param: name,
		Message: fmt.Sprintf("%s: expected %s, got %q", name, expected, short(got))}
}
