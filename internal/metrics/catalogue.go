package metrics

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Family describes the series of one name.
type Family struct {
	Name, Help string
	Type       FamilyType
	// Labels are the names of its labels in alphabetical order, those included whose
	// value is the same for all series.
	Labels []string
}

// FamilyType says what the values of a family are.
type FamilyType string

// The types.
const (
	CounterFamily   FamilyType = "counter"
	GaugeFamily     FamilyType = "gauge"
	HistogramFamily FamilyType = "histogram"
)

// Catalogue returns every family of a Set with default options, sorted by name: those
// that New makes, whether or not they have series yet. Those of the client library, about
// the process and its runtime, are not among them. The caller owns what it returns.
func Catalogue() []Family {
	return slices.SortedFunc(maps.Values(New(Options{}).fam.catalogue), func(a, b Family) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// counterDesc and gaugeDesc describe families whose series are made when they are scraped.
type (
	counterDesc struct{ *prometheus.Desc }
	gaugeDesc   struct{ *prometheus.Desc }
)

// descs makes the descriptions of such a collector, which embeds it.
type descs struct {
	r   registrar
	all []*prometheus.Desc
}

func (d *descs) counter(name, help string, labels ...string) counterDesc {
	return counterDesc{d.desc(CounterFamily, name, help, labels)}
}

func (d *descs) gauge(name, help string, labels ...string) gaugeDesc {
	return gaugeDesc{d.desc(GaugeFamily, name, help, labels)}
}

func (d *descs) desc(t FamilyType, name, help string, labels []string) *prometheus.Desc {
	d.r.note(t, name, help, nil, labels)
	desc := prometheus.NewDesc(name, help, labels, nil)
	d.all = append(d.all, desc)
	return desc
}

// Describe implements prometheus.Collector.
func (d *descs) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range d.all {
		ch <- desc
	}
}

// exposer sends values to a scrape.
type exposer struct{ ch chan<- prometheus.Metric }

func (e exposer) counter(d counterDesc, v uint64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d.Desc, prometheus.CounterValue, float64(v), labels...)
}

func (e exposer) gauge(d gaugeDesc, v float64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d.Desc, prometheus.GaugeValue, v, labels...)
}
