package metrics

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// Part is one of the processes that a fleet under Dynamo consists of, or several of
// them. Every series belongs to exactly one, so that scraping the parts apart counts
// nothing twice and leaves nothing out.
type Part uint8

// The parts.
const (
	// PartFrontend has whatever is no other's: requests, models, placement, this
	// process.
	PartFrontend Part = 1 << iota
	// PartWorker has what engines do and how full their caches are.
	PartWorker
	// PartRouter has the bandit policies, and the requests to find a worker.
	PartRouter
	// PartProcessor has chats and completions as they pass from router to worker.
	PartProcessor

	// AllParts are all of them.
	AllParts = PartFrontend | PartWorker | PartRouter | PartProcessor

	// bySeries marks a family whose series belong to different parts.
	bySeries Part = 0
)

// HandlerOf is [Set.Handler] for the series of some parts.
func (s *Set) HandlerOf(p Part) http.Handler {
	return promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return s.gather(p) }), promhttp.HandlerOpts{
		Registry:           s.reg, // counts errors of the handler
		ErrorHandling:      promhttp.ContinueOnError,
		DisableCompression: true,
	})
}

// gather collects the series of some parts.
func (s *Set) gather(p Part) ([]*dto.MetricFamily, error) {
	families, err := s.reg.Gather()
	if p == AllParts {
		return families, err
	}
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
		part, ok := s.fam.parts[f.GetName()]
		switch {
		case !ok:
			part = PartFrontend
		case part == bySeries:
			f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool { return p&partOf(m) == 0 })
			return len(f.Metric) == 0
		}
		return p&part == 0
	})
	return families, err
}

// partOf returns whose a series of work is.
func partOf(m *dto.Metric) Part {
	part := PartProcessor
	for _, l := range m.GetLabel() {
		switch {
		case l.GetName() == labelComponent && l.GetValue() == componentRouter:
			part = PartRouter
		case l.GetName() == labelWorker && l.GetValue() != "":
			part = PartWorker
		}
	}
	return part
}
