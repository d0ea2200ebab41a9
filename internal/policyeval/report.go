package policyeval

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/stator-ai/stator/internal/terminal"
	"github.com/stator-ai/stator/nvext"
)

// number is null in JSON where there is none.
type number = nvext.Float

// Interval is an estimate with what it may be with 95 % confidence, in the unit of the
// metric. An end that is not known is infinite, null in JSON.
type Interval struct {
	Value number `json:"value"`
	Low   number `json:"low"`
	High  number `json:"high"`
}

// Verdict is what an evaluation comes to.
type Verdict string

const (
	// Better and Worse: than the recorded policy, with 95 % confidence.
	Better Verdict = "better"
	Worse  Verdict = "worse"
	// Same: it is the recorded policy, as likely as that to choose each candidate.
	Same Verdict = "same"
	// Unclear: it may be either.
	Unclear Verdict = "unclear"
	// Untrusted: the rows do not say enough about the policy; see the warnings.
	Untrusted Verdict = "untrusted"
)

// Result is what the log says about a policy.
type Result struct {
	// Policy is as it was asked for.
	Policy string `json:"policy"`
	// Value is the doubly robust estimate of the policy's mean.
	Value Interval `json:"value"`
	// Change is how far that is from the same estimate of the recorded policy, row by row:
	// the difference of rewards, or by which share times are longer, so that −0.1 is a
	// tenth less. It is 0 for the recorded policy itself.
	Change Interval `json:"change"`
	// IPS and SNIPS are the estimates from weights alone, without a model. Both know
	// nothing of choices that the recorded policy could not make.
	IPS   Interval `json:"ips"`
	SNIPS Interval `json:"snips"`
	// Support is the share of the policy's choices that the recorded one could have made. A
	// choice that it was less likely to make than once in MaxWeight counts in part.
	Support number `json:"support"`
	// EffectiveSamples is how many equally weighted rows would say as much.
	EffectiveSamples number `json:"effective_samples"`
	// MeanWeight is about Support where the recorded probabilities are right.
	MeanWeight number `json:"mean_weight"`
	// Clipped is how many rows had a weight that was bounded.
	Clipped int     `json:"clipped"`
	Verdict Verdict `json:"verdict"`

	misfit bool
}

// Report is what a log says about policies. Its JSON form is a contract.
type Report struct {
	Metric Metric `json:"metric"`
	// Rows is how many decisions there are, Chance in how many of them chance had a part,
	// and Recorded how many each policy made, those included that count for nothing.
	Rows     int            `json:"rows"`
	Chance   int            `json:"chance"`
	Recorded map[string]int `json:"recorded"`
	Skipped  Skipped        `json:"skipped"`
	// Bootstrap is how many times intervals were estimated again; 0 if they come from
	// variances. MaxWeight is what weights were bounded by.
	Bootstrap int     `json:"bootstrap"`
	MaxWeight float64 `json:"max_weight"`
	// Value is the mean of the recorded decisions: of rewards, or the geometric mean of
	// times in milliseconds.
	Value    Interval `json:"value"`
	Policies []Result `json:"policies"`
	// Warnings say which of these are not to be trusted, and why.
	Warnings []string `json:"warnings"`
}

// oneStep is what no log can say.
const oneStep = "decisions are taken one at a time: that another policy fills queues and caches differently is not in these numbers"

// warn fills in the warnings.
func (r *Report) warn() {
	r.Warnings = []string{oneStep}
	add := func(format string, args ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...)) }
	if r.Chance == 0 {
		add("the recorded policy left nothing to chance: rows say something about another one only where it chooses the same; router.cost.temperature or router.policy thompson let chance have a part")
	}
	unfinished := r.Skipped[NotCompleted] + r.Skipped[Retried]
	all := r.Rows
	for why, rows := range r.Skipped {
		if why != NotPlaced && why != OtherModel && why != TooLong && why != CutOff {
			all += rows
		}
	}
	if share := float64(unfinished) / float64(all); share > maxUnfinished {
		add("%.1f %% of requests that were to be placed were not completed, or placed more than once: whether other policies would have more or fewer of these is not in these numbers", 100*share)
	}
	for i := range r.Policies {
		p := &r.Policies[i]
		if p.EffectiveSamples < minEffective {
			add("%s: %.0f effective samples, of at least %d that intervals need", p.Policy, p.EffectiveSamples, minEffective)
		}
		if p.Support < minSupport {
			add("%s: the recorded policy makes %.1f %% of its choices never, or too rarely to tell: IPS and SNIPS know nothing of these, and DR what the model says", p.Policy, 100*(1-p.Support))
		}
		if p.misfit {
			add("%s: weights of %.3f on average, where %.3f is expected: the recorded probabilities are not those of the choices", p.Policy, p.MeanWeight, p.Support)
		}
	}
}

var metricTexts = map[Metric]string{
	MetricReward: "reward, 0 to 1: 0.4·cached share of the prompt + 0.4/(1 + TTFT/0.5 s) + 0.2/(1 + ITL/0.05 s)",
	MetricTTFT:   "time from the choice to the first token in ms, geometric mean; less is better",
	MetricITL:    "time between tokens in ms, geometric mean; less is better",
	MetricE2E:    "time from the choice to the end of the answer in ms, geometric mean; less is better",
}

// String returns the report as a table for a person to read.
func (r *Report) String() string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s, in %d chance had a part; recorded: %s", counted(r.Rows, "decision"), r.Chance, r.recorded())
	if r.Skipped.Rows() > 0 {
		fmt.Fprintf(&out, "; %v", r.Skipped)
	}
	fmt.Fprintf(&out, "\n%s\n\n", metricTexts[r.Metric])
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { fmt.Fprintf(w, "%s\t\n", strings.Join(cells, "\t")) }
	row("policy", "value", "low", "high", "change", "low", "high", "IPS", "SNIPS", "support", "effective", "verdict")
	row(slices.Concat([]string{"(as recorded)"}, r.cells(r.Value), slices.Repeat([]string{""}, 8))...)
	for i := range r.Policies {
		p := &r.Policies[i]
		row(slices.Concat([]string{p.Policy}, r.cells(p.Value), r.changeCells(p.Change), []string{
			r.cell(p.IPS.Value), r.cell(p.SNIPS.Value), fmt.Sprintf("%.1f %%", 100*p.Support), fmt.Sprintf("%.0f", p.EffectiveSamples), string(p.Verdict),
		})...)
	}
	w.Flush()
	for line := range strings.Lines(table.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	from := "variances"
	if r.Bootstrap > 0 {
		from = counted(r.Bootstrap, "resample")
	}
	fmt.Fprintf(&out, "\nvalue: doubly robust; low and high: 95 %%, from %s; change: against the recorded policy, estimated alike\n", from)
	for _, text := range r.Warnings {
		fmt.Fprintf(&out, "warning: %s\n", text)
	}
	return out.String()
}

// maxRecorded is how many policies the text names. A fleet has one or two; a file may have
// any number.
const maxRecorded = 5

// recorded lists who made the decisions, by name; of too many, those that made the most.
func (r *Report) recorded() string {
	names := slices.Sorted(maps.Keys(r.Recorded))
	others, more := 0, max(len(names)-maxRecorded, 0)
	if more > 0 {
		slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(r.Recorded[b], r.Recorded[a]) })
		for _, name := range names[maxRecorded:] {
			others += r.Recorded[name]
		}
		names = names[:maxRecorded]
	}
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", name, r.Recorded[name]))
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("%d more %d", more, others))
	}
	return strings.Join(parts, ", ")
}

// visible returns text in one line, short, and without anything that is not to be seen: what
// a file says is nothing that a terminal should do.
func visible(text string) string {
	const most = 64
	n := 0
	for i := range text {
		if n == most {
			text = text[:i] + "…"
			break
		}
		n++
	}
	return terminal.Line(text)
}

func (r *Report) cells(v Interval) []string {
	return []string{r.cell(v.Value), r.cell(v.Low), r.cell(v.High)}
}

func (r *Report) cell(v number) string {
	switch {
	case !finite(v):
		return "?"
	case r.Metric.isTime():
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}

func (r *Report) changeCells(v Interval) []string {
	var out []string
	for _, x := range []number{v.Value, v.Low, v.High} {
		switch {
		case !finite(x):
			out = append(out, "?")
		case r.Metric.isTime():
			out = append(out, fmt.Sprintf("%+.1f %%", 100*x))
		default:
			out = append(out, fmt.Sprintf("%+.4f", x))
		}
	}
	return out
}

func finite(v number) bool { return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) }
