package metrics

import (
	"net/http"
	"time"
)

// IndexService records what concerns an index that is asked over HTTP. Get it from
// Set.IndexService. It is safe for concurrent use.
type IndexService struct{ fam *families }

// IndexService returns the recorder of the index service. Its series are there from
// the first call on.
func (s *Set) IndexService() *IndexService {
	x := &IndexService{s.fam}
	s.fam.serviceModels.WithLabelValues()
	s.fam.serviceWorkers.WithLabelValues()
	for _, status := range listenerStatuses {
		s.fam.serviceListeners.WithLabelValues(status)
	}
	return x
}

// serviceEndpoints are the paths by which requests to the service are told apart.
var serviceEndpoints = []string{
	"/register", "/unregister", "/workers", "/query", "/query_by_hash", "/events",
	"/route", "/dump", "/restore", "/kv_indexer_query", "/health", "/metrics",
	"/openapi.json", "/docs", other,
}

var serviceMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodOptions, other,
}

// Request records that a request was answered with an HTTP status after d. The
// endpoint is its path, without a query; paths and methods that are not known share
// one label.
func (x *IndexService) Request(endpoint, method string, status int, d time.Duration) {
	endpoint = serviceEndpoints[index(serviceEndpoints, endpoint)]
	method = serviceMethods[index(serviceMethods, method)]
	x.fam.serviceRequests.WithLabelValues(endpoint, method).Inc()
	x.fam.serviceDuration.WithLabelValues(endpoint).Observe(seconds(d))
	switch {
	case status >= 500:
		x.fam.serviceErrors.WithLabelValues(endpoint, "5xx").Inc()
	case status >= 400:
		x.fam.serviceErrors.WithLabelValues(endpoint, "4xx").Inc()
	}
}

// SetSize exposes how many indexes the service has, and how many workers are
// registered with it.
func (x *IndexService) SetSize(models, workers int) {
	x.fam.serviceModels.WithLabelValues().Set(float64(models))
	x.fam.serviceWorkers.WithLabelValues().Set(float64(workers))
}

// ListenerCounts are numbers of ranks of which the service takes events in, by how
// these come: not yet, or as they should, or not for now, or no more.
type ListenerCounts struct {
	Pending, Active, Paused, Failed int
}

var listenerStatuses = [...]string{"pending", "active", "paused", "failed"}

// SetListeners exposes the ranks that the service listens to.
func (x *IndexService) SetListeners(n ListenerCounts) {
	for i, v := range [len(listenerStatuses)]int{n.Pending, n.Active, n.Paused, n.Failed} {
		x.fam.serviceListeners.WithLabelValues(listenerStatuses[i]).Set(float64(v))
	}
}
