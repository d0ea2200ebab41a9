package metrics

import (
	"maps"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NoRank is the rank of a worker whose data-parallel rank is not known.
const NoRank = math.MaxUint32

// Worker records what concerns one rank of one worker in one role. Get it from
// Set.Worker. It is safe for concurrent use.
type Worker struct {
	series *workerSeries
	fam    *families
	labels [3]string // worker_id, dp_rank, worker_type

	decodeBlocks, prefillTokens, requests prometheus.Gauge
}

// workerSeries are the series of all ranks and roles of one worker.
type workerSeries struct {
	id          string
	gate        gate
	inhibitions prometheus.Counter
	trips       prometheus.Counter
	decisions   prometheus.Counter
	work        Work
	thompson    thompsonSeries

	kve map[string]*kveSeries // by model, guarded by gate

	// Guarded by Set.mu.
	ranks  map[workerRank]*Worker
	truths map[string]*Truth // by model
}

type workerRank struct {
	rank uint32
	role WorkerType
}

// Worker returns the recorder of one rank of a worker that decodes, alone or
// besides prefilling. Series are made at the first call. It takes a lock; keep
// what it returns.
func (s *Set) Worker(id uint64, rank uint32) *Worker {
	return s.worker(id, workerRank{rank, WorkerDecode})
}

// PrefillWorker is Worker for a worker that only prefills.
func (s *Set) PrefillWorker(id uint64, rank uint32) *Worker {
	return s.worker(id, workerRank{rank, WorkerPrefill})
}

func (s *Set) worker(id uint64, key workerRank) *Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	ws := s.workerSeriesLocked(id)
	w := ws.ranks[key]
	if w == nil {
		rank := "none"
		if key.rank != NoRank {
			rank = strconv.FormatUint(uint64(key.rank), 10)
		}
		w = &Worker{series: ws, fam: s.fam, labels: [3]string{ws.id, rank, string(key.role)}}
		w.decodeBlocks = s.fam.activeDecodeBlocks.WithLabelValues(w.labels[:]...)
		w.prefillTokens = s.fam.activePrefillTokens.WithLabelValues(w.labels[:]...)
		w.requests = s.fam.activeRequests.WithLabelValues(w.labels[:]...)
		ws.ranks[key] = w
	}
	return w
}

// workerSeriesLocked returns the series of a worker, new ones if it has none.
func (s *Set) workerSeriesLocked(id uint64) *workerSeries {
	ws := s.liveWorker(id)
	if ws == nil {
		label := strconv.FormatUint(id, 10)
		ws = &workerSeries{
			id:          label,
			inhibitions: s.fam.inhibitions.WithLabelValues(label),
			trips:       s.fam.trips.WithLabelValues(label),
			decisions:   s.fam.processor.decisions.WithLabelValues(label),
			work:        s.fam.work.with(namespaceWorkers, componentBackend, endpointGenerate, label),
			kve:         make(map[string]*kveSeries),
			ranks:       make(map[workerRank]*Worker),
			truths:      make(map[string]*Truth),
		}
		ws.thompson.init(&ws.gate, &s.fam.thompson)
		workers := maps.Clone(*s.workers.Load())
		workers[id] = ws
		s.workers.Store(&workers)
	}
	return ws
}

// liveWorker returns the series of a worker that has not left, nil for others.
func (s *Set) liveWorker(id uint64) *workerSeries { return (*s.workers.Load())[id] }

// DropWorker removes all series of a worker that has left, in all its ranks and
// roles, and for all models. A later call of Worker or Truth with the same id
// begins anew.
func (s *Set) DropWorker(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ws := s.liveWorker(id)
	if ws == nil {
		return
	}
	workers := maps.Clone(*s.workers.Load())
	delete(workers, id)
	s.workers.Store(&workers)
	ws.gate.close(func() {
		match := prometheus.Labels{labelWorker: ws.id}
		for _, v := range []*prometheus.GaugeVec{
			s.fam.activeDecodeBlocks, s.fam.activePrefillTokens,
			s.fam.lastTTFT, s.fam.lastInputTokens, s.fam.lastITL,
			s.fam.activeRequests, s.fam.cacheTrust,
		} {
			v.DeletePartialMatch(match)
		}
		for _, v := range s.fam.truths() {
			v.DeletePartialMatch(match)
		}
		s.fam.inhibitions.DeleteLabelValues(ws.id)
		s.fam.trips.DeleteLabelValues(ws.id)
		s.fam.processor.decisions.DeleteLabelValues(ws.id)
		s.fam.work.drop(match)
		s.fam.kve.drop(match)
		s.fam.thompson.drop(match)
	})
}

// SetLoad exposes what is booked on the rank: KV-cache blocks of its requests,
// and prompt tokens not yet prefilled.
func (w *Worker) SetLoad(decodeBlocks, prefillTokens int) {
	w.decodeBlocks.Set(float64(decodeBlocks))
	w.prefillTokens.Set(float64(prefillTokens))
}

// SetRequests exposes how many requests are booked on the rank.
func (w *Worker) SetRequests(n int) { w.requests.Set(float64(n)) }

// SetTrust exposes how far predictions of what the rank has in its cache are
// believed: 1 if they come true. Before the first call the rank has no such
// series.
func (w *Worker) SetTrust(f float64) {
	w.series.gate.open(func() { w.fam.cacheTrust.WithLabelValues(w.labels[:]...).Set(f) })
}

// Last exposes the figures of the rank's latest request. A value that is not
// positive is unknown and leaves its gauge as it was: an answer of one token
// has no inter-token latency, and prefill and decode workers each know a part.
func (w *Worker) Last(ttft, itl time.Duration, promptTokens int) {
	w.series.gate.open(func() {
		if ttft > 0 {
			w.fam.lastTTFT.WithLabelValues(w.labels[:]...).Set(ttft.Seconds())
		}
		if itl > 0 {
			w.fam.lastITL.WithLabelValues(w.labels[:]...).Set(itl.Seconds())
		}
		if promptTokens > 0 {
			w.fam.lastInputTokens.WithLabelValues(w.labels[:]...).Set(float64(promptTokens))
		}
	})
}

// Inhibited records that the worker, with all its ranks, was set aside after
// failures.
func (w *Worker) Inhibited() { w.series.inhibitions.Inc() }

// Tripped records that the worker was set aside because its requests kept failing
// although it said that it was well.
func (w *Worker) Tripped() { w.series.trips.Inc() }
