package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The labels of work, and their values.
const (
	labelNamespace = "dynamo_namespace"
	labelComponent = "dynamo_component"
	labelEndpoint  = "dynamo_endpoint"
	labelWorker    = "worker_id"

	namespaceWorkers = "workers"
	componentBackend = "backend"
	componentRouter  = "router"
	endpointGenerate = "generate"
)

// workBuckets are the usual ones, with more below for decisions and above for answers.
var workBuckets = []float64{
	0.00001, 0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300,
}

// Work records the requests that one component of the server answers. Every Begin
// needs an End. It is safe for concurrent use and does not allocate.
type Work struct {
	requests prometheus.Counter
	duration prometheus.Observer
	inflight prometheus.Gauge
}

// Begin records that a request has come.
func (w *Work) Begin() {
	w.requests.Inc()
	w.inflight.Inc()
}

// End records that a request was answered, or given up, and how long that took.
func (w *Work) End(took time.Duration) {
	w.inflight.Dec()
	w.duration.Observe(seconds(took))
}

// FindWorker returns the recorder of requests to place a request.
func (s *Set) FindWorker() *Work { return &s.fam.work.findWorker }

// workFamilies are the families of all components' work. The worker label is empty,
// which is the same as not there, but for the work of a worker.
type workFamilies struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inflight *prometheus.GaugeVec

	processor, findWorker Work
	feedback              prometheus.Counter
}

func newWorkFamilies(r registrar, namespace string) workFamilies {
	r = r.of(bySeries)
	labels := []string{labelNamespace, labelComponent, labelEndpoint, labelWorker}
	f := workFamilies{
		requests: r.counters(eventPrefix+"requests_total", "Requests that a component was sent: generate of workers and of the whole, find_worker and feedback of the router.", labels...),
		duration: r.histograms(eventPrefix+"request_duration_seconds", "Time that a component took for a request, waiting included.", workBuckets, nil, labels...),
		inflight: r.gauges(eventPrefix+"inflight_requests", "Requests that a component has not finished yet.", labels...),
	}
	f.processor = f.with(namespace, componentBackend, endpointGenerate, "")
	f.findWorker = f.with(namespace, componentRouter, "find_worker", "")
	f.feedback = f.requests.WithLabelValues(namespace, componentRouter, "feedback", "")
	return f
}

func (f *workFamilies) with(labels ...string) Work {
	return Work{
		requests: f.requests.WithLabelValues(labels...),
		duration: f.duration.WithLabelValues(labels...),
		inflight: f.inflight.WithLabelValues(labels...),
	}
}

// drop removes the work of a worker.
func (f *workFamilies) drop(match prometheus.Labels) {
	f.requests.DeletePartialMatch(match)
	f.duration.DeletePartialMatch(match)
	f.inflight.DeletePartialMatch(match)
}
