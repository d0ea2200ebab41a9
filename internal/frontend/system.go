package frontend

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
)

// reply answers with a JSON document.
func reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

type statusBody struct {
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// live says that the process runs.
func (s *Server) live(w http.ResponseWriter, _ *http.Request, _ *Key) {
	reply(w, http.StatusOK, statusBody{Status: "live", Message: "Service is live"})
}

// ready says whether a request could be served now.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request, _ *Key) {
	reason := ""
	switch {
	case s.draining.Load():
		reason = "the server is draining"
	case !slices.ContainsFunc(s.router.Status(), router.ModelStatus.Routable):
		reason = "no routable worker"
	}
	if reason != "" {
		w.Header().Set("Retry-After", retryAfter)
		reply(w, http.StatusServiceUnavailable, statusBody{Status: "not_ready", Reason: reason})
		return
	}
	reply(w, http.StatusOK, statusBody{Status: "ready"})
}

// The detail of /health. Endpoints and instances are what Dynamo's clients read.
type healthBody struct {
	Status    string           `json:"status"`
	Version   string           `json:"version,omitempty"`
	Inflight  int              `json:"inflight"`
	Models    []string         `json:"models"`
	Endpoints []string         `json:"endpoints"`
	Instances []healthInstance `json:"instances"`
	// Warnings say what stands in the way of the best use of engines.
	Warnings []healthWarning `json:"warnings,omitempty"`
}

// healthWarning is a warning of a worker.
type healthWarning struct {
	InstanceID uint64 `json:"instance_id"`
	Code       string `json:"code"`
	Text       string `json:"text"`
}

type healthInstance struct {
	Component  string            `json:"component"`
	Endpoint   string            `json:"endpoint"`
	Namespace  string            `json:"namespace"`
	InstanceID uint64            `json:"instance_id"`
	Transport  map[string]string `json:"transport"`
	Model      string            `json:"model"`
	Engine     string            `json:"engine"`
	DPRank     uint32            `json:"dp_rank"`
	State      string            `json:"state"`
	Inflight   int               `json:"inflight"`
}

// health says how the server and its workers are. Where there are keys, who has
// none learns nothing about the workers.
func (s *Server) health(w http.ResponseWriter, r *http.Request, _ *Key) {
	detail := len(s.keys) == 0 || s.keys.find(bearer(r.Header)) != nil
	body := healthBody{
		Status:    "healthy",
		Version:   s.cfg.Version,
		Inflight:  s.Inflight(),
		Models:    []string{},
		Endpoints: []string{},
		Instances: []healthInstance{},
	}
	for _, m := range s.router.Status() {
		if !detail {
			continue
		}
		if m.Discovered() {
			body.Models = append(body.Models, m.Model.ID)
		}
		for _, wk := range m.Workers {
			body.Instances = append(body.Instances, describeWorker(m.Model.ID, wk))
		}
	}
	for _, wk := range s.router.Unidentified() {
		if !detail {
			break
		}
		body.Instances = append(body.Instances, describeWorker("", wk))
	}
	if detail && s.cfg.Engines != nil {
		for _, e := range s.cfg.Engines() {
			for _, w := range e.Warnings {
				body.Warnings = append(body.Warnings, healthWarning{e.ID, w.Code, w.Text})
			}
		}
	}
	if len(body.Instances) > 0 {
		body.Endpoints = append(body.Endpoints, "dyn://dynamo.backend.generate")
	}
	status := http.StatusOK
	if s.draining.Load() {
		body.Status, status = "draining", http.StatusServiceUnavailable
	}
	reply(w, status, body)
}

func describeWorker(model string, wk router.WorkerStatus) healthInstance {
	return healthInstance{
		Component:  "backend",
		Endpoint:   "generate",
		Namespace:  "dynamo",
		InstanceID: uint64(wk.Target.Worker),
		Transport:  map[string]string{"http": wk.Name},
		Model:      model,
		Engine:     wk.Kind,
		DPRank:     wk.Target.Rank,
		State:      string(wk.State),
		Inflight:   wk.Inflight,
	}
}

type modelBody struct {
	ID            string `json:"id"`
	Object        string `json:"object"`
	Created       int64  `json:"created"`
	OwnedBy       string `json:"owned_by"`
	ContextWindow int    `json:"context_window,omitempty"`
}

func describeModel(m *router.Model) modelBody {
	return modelBody{ID: m.ID, Object: "model", Created: m.Created.Unix(), OwnedBy: "nvidia", ContextWindow: m.ContextLength}
}

// models lists the models that have a worker.
func (s *Server) models(w http.ResponseWriter, _ *http.Request, _ *Key) {
	list := struct {
		Object string      `json:"object"`
		Data   []modelBody `json:"data"`
	}{Object: "list", Data: []modelBody{}}
	for _, m := range s.router.Status() {
		if m.Discovered() {
			list.Data = append(list.Data, describeModel(m.Model))
		}
	}
	reply(w, http.StatusOK, list)
}

// model describes one model. Its id may contain slashes.
func (s *Server) model(w http.ResponseWriter, r *http.Request, _ *Key) {
	id := r.URL.Path[len(modelPrefix):]
	all := s.router.Status()
	i := slices.IndexFunc(all, func(m router.ModelStatus) bool { return m.Model.ID == id })
	switch {
	case i < 0:
		s.fail(w, s.unknownModel(id))
	case !all[i].Discovered():
		s.fail(w, modelUnavailable(id, nil))
	default:
		reply(w, http.StatusOK, describeModel(all[i].Model))
	}
}

type thresholdBody struct {
	Model         string   `json:"model"`
	DecodeBlocks  *float64 `json:"active_decode_blocks_threshold"`
	PrefillTokens *uint64  `json:"active_prefill_tokens_threshold"`
	PrefillFrac   *float64 `json:"active_prefill_tokens_threshold_frac"`
}

func describeThresholds(model string, t router.Thresholds) thresholdBody {
	return thresholdBody{model, t.DecodeBlocks, t.PrefillTokens, t.PrefillFrac}
}

// listThresholds answers with the thresholds of all models.
func (s *Server) listThresholds(w http.ResponseWriter, _ *http.Request, _ *Key) {
	all := struct {
		Thresholds []thresholdBody `json:"thresholds"`
	}{[]thresholdBody{}}
	for _, m := range s.router.Status() {
		all.Thresholds = append(all.Thresholds, describeThresholds(m.Model.ID, m.Model.Thresholds()))
	}
	slices.SortFunc(all.Thresholds, func(a, b thresholdBody) int { return cmp.Compare(a.Model, b.Model) })
	reply(w, http.StatusOK, all)
}

// setThresholds reads or changes the thresholds of one model. Its errors have a
// shape of their own.
func (s *Server) setThresholds(w http.ResponseWriter, r *http.Request, _ *Key) {
	refuse := func(status int, msg string) {
		reply(w, status, map[string]string{"error": msg})
	}
	raw, held, err := s.readBody(w, r, smallBody)
	defer s.free(held)
	if err != nil {
		status := http.StatusBadRequest
		if e := (*openai.Error)(nil); errors.As(err, &e) {
			status = e.HTTPStatus()
		}
		refuse(status, err.Error())
		return
	}
	o, err := openai.ParseObject(raw)
	if err != nil {
		refuse(http.StatusBadRequest, err.Error())
		return
	}
	body, err := readThresholds(&o)
	if err != nil {
		refuse(http.StatusUnprocessableEntity, err.Error())
		return
	}
	patch := router.Thresholds{DecodeBlocks: body.DecodeBlocks, PrefillTokens: body.PrefillTokens, PrefillFrac: body.PrefillFrac}
	m, err := s.router.Lookup(body.Model)
	switch d, f := body.DecodeBlocks, body.PrefillFrac; {
	case d != nil && !(*d >= 0 && *d <= 1):
		refuse(http.StatusBadRequest, fmt.Sprintf("active_decode_blocks_threshold: expected a number between 0 and 1, got %g", *d))
	case f != nil && !(*f >= 0):
		refuse(http.StatusBadRequest, fmt.Sprintf("active_prefill_tokens_threshold_frac: expected a number that is not negative, got %g", *f))
	case err != nil && patch.Set():
		refuse(http.StatusNotFound, "model: no model `"+short(body.Model)+"` is served")
	case err != nil:
		reply(w, http.StatusOK, describeThresholds(body.Model, router.Thresholds{}))
	default:
		reply(w, http.StatusOK, describeThresholds(body.Model, m.SetThresholds(patch)))
	}
}

// readThresholds reads the body of a change. Errors name the field.
func readThresholds(o *openai.Object) (body thresholdBody, err error) {
	model, ok := o.Get("model").Text()
	if !ok || model == "" {
		return body, fmt.Errorf("model: expected the name of a model, got %s", o.Get("model").TypeName())
	}
	body.Model = model
	if body.DecodeBlocks, err = number(o, "active_decode_blocks_threshold"); err != nil {
		return body, err
	}
	if body.PrefillFrac, err = number(o, "active_prefill_tokens_threshold_frac"); err != nil {
		return body, err
	}
	const tokens = "active_prefill_tokens_threshold"
	if v := o.Get(tokens); v.Present() {
		n, ok := v.Uint()
		if !ok {
			return body, fmt.Errorf("%s: expected a non-negative integer, got %s", tokens, v.TypeName())
		}
		body.PrefillTokens = &n
	}
	return body, nil
}

func number(o *openai.Object, key string) (*float64, error) {
	v := o.Get(key)
	if !v.Present() {
		return nil, nil
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || v.Kind() != '0' {
		return nil, fmt.Errorf("%s: expected a number, got %s", key, v.TypeName())
	}
	return &f, nil
}
