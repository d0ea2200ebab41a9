package monitor

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stator-ai/stator/internal/metrics"
)

// query is an expression of PromQL and what is known of its result. What is wrong with it
// stays with it, until whoever uses it looks.
type query struct {
	text   string
	labels []string // that its result may have
	need   Need     // the last of those of its parts
	raw    bool     // a selector of counters, of which only rates mean something
	binds  int      // how tightly its outermost operator binds
	err    error
}

// How tightly operators bind.
const (
	bindsOr = iota
	bindsCompare
	bindsAdd
	bindsMul
	bindsAtom
)

// matcher selects series by one label.
type matcher struct{ label, op, value string }

func is(label, value string) matcher    { return matcher{label, "=", value} }
func isNot(label, value string) matcher { return matcher{label, "!=", value} }
func like(label, value string) matcher  { return matcher{label, "=~", value} }

// Matchers of the dashboard's variables. Models are found in any case, because the families
// about requests have their names in lower case.
var (
	someModel  = like("model", "(?i)$model")
	someWorker = like("worker_id", "$worker")
	// Some of Stator's servers, see [schema.chosen].
	someServer = like("instance", "$instance")
)

// series selects series by name and labels.
func (s schema) series(name string, where ...matcher) query {
	f, err := s.find(name)
	where = append(where[:len(where):len(where)], f.always...)
	q := query{text: name, labels: f.labels, need: f.need, raw: f.kind == metrics.CounterFamily, binds: bindsAtom, err: err}
	if len(where) == 0 {
		return q
	}
	var b strings.Builder
	b.WriteString(name)
	for i, m := range where {
		if err == nil && !slices.Contains(f.labels, m.label) {
			q.err = errors.Join(q.err, fmt.Errorf("series %s: it has no label %s", name, m.label))
		}
		sep := ","
		if i == 0 {
			sep = "{"
		}
		b.WriteString(sep + m.label + m.op + strconv.Quote(m.value))
	}
	b.WriteByte('}')
	q.text = b.String()
	return q
}

// function applies a function of PromQL that keeps labels.
func function(name string, q query, before, after string) query {
	q.text = name + "(" + before + q.text + after + ")"
	q.raw, q.binds = false, bindsAtom
	return q
}

// over applies a function over a window to a selector.
func over(name, before string, q query, window string, counters bool) query {
	if q.err == nil && q.raw != counters {
		what := "a gauge"
		if counters {
			what = "a counter"
		}
		q.err = fmt.Errorf("%s of %s: expected %s", name, q.text, what)
	}
	return function(name, q, before, "["+window+"]")
}

func rate(q query, window string) query     { return over("rate", "", q, window, true) }
func increase(q query, window string) query { return over("increase", "", q, window, true) }
func highest(q query, window string) query  { return over("max_over_time", "", q, window, false) }
func median(q query, window string) query {
	return over("quantile_over_time", "0.5, ", q, window, false)
}

// aggregate combines the series that have the same values of some labels.
func aggregate(op string, q query, by []string) query {
	if q.raw {
		q.err = errors.Join(q.err, fmt.Errorf("%s of %s: a counter is to be made a rate first", op, q.text))
	}
	for _, l := range by {
		if q.err == nil && !slices.Contains(q.labels, l) {
			q.err = fmt.Errorf("%s by %s of %s: it has no such label", op, l, q.text)
		}
	}
	clause := ""
	if len(by) > 0 {
		clause = "by (" + strings.Join(by, ", ") + ") "
		op += " "
	}
	q.text = op + clause + "(" + q.text + ")"
	q.labels, q.binds = slices.Clone(by), bindsAtom
	return q
}

func sum(q query, by ...string) query     { return aggregate("sum", q, by) }
func most(q query, by ...string) query    { return aggregate("max", q, by) }
func least(q query, by ...string) query   { return aggregate("min", q, by) }
func howMany(q query, by ...string) query { return aggregate("count", q, by) }

// quantile estimates a quantile of a histogram from the rates of its buckets.
func quantile(p float64, buckets query) query {
	i := slices.Index(buckets.labels, "le")
	if i < 0 {
		buckets.err = errors.Join(buckets.err, fmt.Errorf("quantile of %s: expected the label le", buckets.text))
		return buckets
	}
	q := function("histogram_quantile", buckets, number(p)+", ", "")
	q.labels = slices.Delete(slices.Clone(q.labels), i, i+1)
	return q
}

func atLeast(q query, v float64) query { return function("clamp_min", q, "", ", "+number(v)) }
func atMost(q query, v float64) query  { return function("clamp_max", q, "", ", "+number(v)) }

// renamed gives the result the label to with the value of from, and takes from away.
func renamed(q query, from, to string, rest ...string) query {
	q = function("label_replace", q, "", fmt.Sprintf(`, %q, "$1", %q, "(.*)"`, to, from))
	q.labels = append(slices.Clone(q.labels), to)
	return most(q, append(rest, to)...)
}

// constant is a number.
func constant(v float64) query { return query{text: number(v), binds: bindsAtom} }

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// operate combines two expressions series by series: they have the same labels, or one of
// them is a number.
func operate(op string, binds int, a, b query) query {
	q := query{labels: a.labels, need: max(a.need, b.need), binds: binds, err: errors.Join(a.err, b.err)}
	if a.raw || b.raw {
		q.err = errors.Join(q.err, fmt.Errorf("%s %s %s: a counter is to be made a rate first", a.text, op, b.text))
	}
	switch {
	case a.number():
		q.labels = b.labels
	case !b.number() && q.err == nil && !sameLabels(a.labels, b.labels):
		q.err = fmt.Errorf("%s %s %s: labels differ: %v and %v", a.text, op, b.text, a.labels, b.labels)
	}
	q.text = a.within(binds) + " " + op + " " + b.within(binds+1)
	return q
}

func div(a, b query) query   { return operate("/", bindsMul, a, b) }
func times(a, b query) query { return operate("*", bindsMul, a, b) }
func plus(a, b query) query  { return operate("+", bindsAdd, a, b) }
func minus(a, b query) query { return operate("-", bindsAdd, a, b) }

// timesOn multiplies each series of a by the one of b that has the same value of a label,
// which is the only one that b has.
func timesOn(label string, a, b query) query {
	q := operate("*", bindsMul, a, constant(1))
	q.need, q.err = max(a.need, b.need), errors.Join(a.err, b.err)
	if q.err == nil && (!slices.Contains(a.labels, label) || !sameLabels(b.labels, []string{label})) {
		q.err = fmt.Errorf("%s * on (%s) %s: labels are %v and %v", a.text, label, b.text, a.labels, b.labels)
	}
	q.text = a.within(bindsMul) + " * on (" + label + ") group_left () " + b.within(bindsAtom)
	return q
}

// orElse is a, and where it has nothing b. They have the same labels.
func orElse(a, b query) query {
	q := operate("or", bindsOr, a, b)
	q.need = min(a.need, b.need)
	return q
}

// orZero is a sum without labels, and 0 before the first of its series appears.
func orZero(q query) query {
	return orElse(q, query{text: "vector(0)", binds: bindsAtom})
}

// that keeps the series of q that compare as said, such as "> 2".
func (q query) that(when string) query {
	if q.err == nil && q.raw {
		q.err = fmt.Errorf("%s %s: a counter is to be made a rate first", q.text, when)
	}
	q.text, q.binds = q.within(bindsAdd)+" "+when, bindsCompare
	return q
}

// mean is what the values of a histogram are on average.
func (s schema) mean(histogram, window string, where []matcher, by ...string) query {
	return div(
		sum(rate(s.series(histogram+"_sum", where...), window), by...),
		sum(rate(s.series(histogram+"_count", where...), window), by...))
}

// Jobs of Prometheus by which Stator is known: those of its API, ours and the one that it has
// in Dynamo's stacks, and with these the ones of its other ports.
const (
	servers = "stator|dynamo-frontend"
	allJobs = "stator|dynamo-(frontend|worker|router|processor)"
)

// orServer is q, and 0 for each server that is up and has no such series, so that an alert
// can be told from one whose series are missing.
func (s schema) orServer(q query) query {
	if q.err == nil && !slices.Contains(q.labels, "instance") {
		q.err = fmt.Errorf("%s: expected the label instance", q.text)
	}
	zero := times(constant(0), sum(s.series("up", like("job", servers)).that("== 1"), "instance"))
	return query{
		text: q.within(bindsCompare) + " or on (instance) " + zero.within(bindsCompare), labels: q.labels, binds: bindsOr,
		err: errors.Join(q.err, zero.err),
	}
}

// number reports whether q is a constant.
func (q query) number() bool {
	_, err := strconv.ParseFloat(q.text, 64)
	return err == nil
}

// within is the text of q as an operand of what binds so tightly.
func (q query) within(binds int) string {
	if q.binds < binds {
		return "(" + q.text + ")"
	}
	return q.text
}

func sameLabels(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
