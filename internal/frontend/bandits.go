package frontend

import (
	"encoding/json"
	"net/http"

	"github.com/stator-ai/stator/internal/router"
)

// bandits says how the policies that learn stand: one for each pool, none where the cost
// decides.
func (s *Server) bandits(w http.ResponseWriter, _ *http.Request, _ *Key) {
	text, err := json.Marshal(struct {
		Pools []router.BanditStatus `json:"pools"`
	}{s.router.Bandits()})
	if err != nil {
		panic(err) // our own types
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(text, '\n'))
}
