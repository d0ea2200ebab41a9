package metrics

import "github.com/prometheus/client_golang/prometheus"

// Truth records how what was predicted of a worker's cache compares with what the
// worker then reports, for one model. Get it from Set.Truth. It is safe for
// concurrent use.
type Truth struct {
	verdicts                [len(verdicts)]prometheus.Counter
	predicted, actual, over prometheus.Counter
}

// Truth returns the recorder for one model on one worker, all ranks together.
// Series are made at the first call and go with DropWorker and DropModel; after
// either, a recorder made before counts unseen, and a new one begins anew. It
// takes a lock; keep what it returns.
func (s *Set) Truth(model string, worker uint64) *Truth {
	model = labelValue(model)
	s.mu.Lock()
	defer s.mu.Unlock()
	ws := s.workerSeriesLocked(worker)
	t := ws.truths[model]
	if t == nil {
		t = &Truth{
			predicted: s.fam.cachePredicted.WithLabelValues(model, ws.id),
			actual:    s.fam.cacheActual.WithLabelValues(model, ws.id),
			over:      s.fam.cacheOverpredicted.WithLabelValues(model, ws.id),
		}
		for i, v := range verdicts {
			t.verdicts[i] = s.fam.cacheVerdicts.WithLabelValues(model, ws.id, string(v))
		}
		ws.truths[model] = t
	}
	return t
}

// Record records one request whose prompt was predicted to be in the cache by
// predicted tokens and was by actual. The numbers count only where they can be
// compared, which under VerdictUnknown and VerdictTokensDiffer they cannot;
// negative ones are taken for 0. It does not allocate.
func (t *Truth) Record(v Verdict, predicted, actual int) {
	i := index(verdicts[:], v)
	t.verdicts[i].Inc()
	if verdicts[i] == VerdictUnknown || verdicts[i] == VerdictTokensDiffer {
		return
	}
	predicted, actual = max(predicted, 0), max(actual, 0)
	t.predicted.Add(float64(predicted))
	t.actual.Add(float64(actual))
	t.over.Add(float64(max(predicted-actual, 0)))
}

// truths are the families of Truth.
func (f *families) truths() [4]*prometheus.CounterVec {
	return [...]*prometheus.CounterVec{f.cacheVerdicts, f.cachePredicted, f.cacheActual, f.cacheOverpredicted}
}

// dropTruth removes the series of one model on one worker.
func (f *families) dropTruth(model, worker string) {
	for _, v := range verdicts {
		f.cacheVerdicts.DeleteLabelValues(model, worker, string(v))
	}
	for _, v := range []*prometheus.CounterVec{f.cachePredicted, f.cacheActual, f.cacheOverpredicted} {
		v.DeleteLabelValues(model, worker)
	}
}
