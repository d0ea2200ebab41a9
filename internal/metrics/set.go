package metrics

import (
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Options configures a Set. The zero value is ready for use.
type Options struct {
	// Version is the version label of stator_build_info; "unknown" if empty.
	Version string
	// RouterID tells replicas of the router apart: the router_id label.
	RouterID uint64
	// Namespace is the dynamo_namespace label of router series; "dynamo" if
	// empty.
	Namespace string
	// Prefix begins the names of the series about requests and models;
	// "dynamo_frontend" if empty. Characters that may not stand in a metric
	// name become underscores.
	Prefix string
	// Buckets changes the buckets of the request histograms.
	Buckets Buckets
}

// Set holds all series of one server on a registry of its own. It is safe for
// concurrent use.
type Set struct {
	reg     *prometheus.Registry
	handler http.Handler
	fam     *families
	stages  [numStages]prometheus.Observer
	encode  prometheus.Observer

	// models is replaced, never changed, so that Model reads it without a lock.
	models atomic.Pointer[map[string]*Model]

	// workers is like that as well.
	workers  atomic.Pointer[map[uint64]*workerSeries]
	thompson *Thompson

	mu      sync.Mutex                // held to change models, workers and what follows
	lowered map[string]*requestSeries // by lower-cased model
	pools   map[string]*poolSeries    // by model
}

// New returns a Set whose registry also has the Go runtime's and the process's
// collectors. It starts nothing.
func New(o Options) *Set {
	if o.Version == "" {
		o.Version = "unknown"
	}
	if o.Namespace == "" {
		o.Namespace = "dynamo"
	}
	o.Version, o.Namespace = labelValue(o.Version), labelValue(o.Namespace)

	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	s := &Set{
		reg:     reg,
		fam:     newFamilies(reg, o),
		lowered: make(map[string]*requestSeries),
		pools:   make(map[string]*poolSeries),
	}
	s.models.Store(&map[string]*Model{})
	s.workers.Store(&map[uint64]*workerSeries{})
	s.thompson = &Thompson{set: s, fam: &s.fam.thompson, pools: make(map[string]poolState)}
	s.fam.buildInfo.WithLabelValues(o.Version, runtime.Version()).Set(1)
	for i, name := range stageNames {
		s.stages[i] = s.fam.stageDuration.WithLabelValues(name)
	}
	s.encode = s.fam.tokenizerLatency.WithLabelValues("tokenize")
	s.handler = s.HandlerOf(AllParts)
	return s
}

// Registry returns the registry behind the Set, for collectors that other
// packages own and for tests.
func (s *Set) Registry() *prometheus.Registry { return s.reg }

// Handler returns the handler of the exposition. It answers uncompressed; if a
// collector fails it exposes the rest and counts the failure in
// promhttp_metric_handler_errors_total.
func (s *Set) Handler() http.Handler { return s.handler }

// Stage records that a request spent d in a stage.
func (s *Set) Stage(st Stage, d time.Duration) { s.stages[st].Observe(seconds(d)) }

// Tokenized records the tokenization of one prompt.
func (s *Set) Tokenized(d time.Duration) {
	s.fam.tokenize.Observe(seconds(d))
	s.encode.Observe(milliseconds(d))
}

// Templated records the rendering of one chat template.
func (s *Set) Templated(d time.Duration) { s.fam.template.Observe(seconds(d)) }

// SetTokenizerCacheBytes exposes how much the tokenizer caches hold.
func (s *Set) SetTokenizerCacheBytes(n int64) { s.fam.tokenizerCacheBytes.Set(float64(n)) }

// HintIgnored records that a hint had no usable value. The field is its path,
// with or without "nvext." in front, or the name of a request header; headers
// share one series, and so do fields that are not known.
func (s *Set) HintIgnored(field string) {
	s.fam.hintsIgnored.WithLabelValues(hintField(field)).Inc()
}

// AuthFailure records a request with a missing, wrong or insufficient key.
func (s *Set) AuthFailure() { s.fam.authFailures.Inc() }

// TraceRows records that n rows were written to the request trace.
func (s *Set) TraceRows(n int) { s.fam.traceRows.Add(float64(n)) }

// TraceRowsDropped records that n rows are missing from the request trace.
func (s *Set) TraceRowsDropped(n int) { s.fam.traceRowsDropped.Add(float64(n)) }

// TracePromptSkipped records that a row of the request trace lacks its hashes.
func (s *Set) TracePromptSkipped() { s.fam.tracePrompts.Inc() }

// SetLeases exposes how many bookings made for other processes have a lease.
func (s *Set) SetLeases(n int) { s.fam.leases.Set(float64(n)) }

// LeaseExpired records that a booking was released because its lease ran out.
func (s *Set) LeaseExpired() { s.fam.leasesExpired.Inc() }

// AddBodyBytes changes the number of request body bytes held in memory by n;
// the caller takes back what it added once the body is released.
func (s *Set) AddBodyBytes(n int64) { s.fam.inflightBodyBytes.Add(float64(n)) }

// labelValue makes s fit for a label, which has to be valid UTF-8.
func labelValue(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// seconds and milliseconds read a clock that went backwards as no time at all.
func seconds(d time.Duration) float64      { return max(d, 0).Seconds() }
func milliseconds(d time.Duration) float64 { return float64(max(d, 0)) / float64(time.Millisecond) }
