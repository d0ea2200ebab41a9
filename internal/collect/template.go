package collect

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rangeMark is replaced by the duration that rates look back.
const rangeMark = "{range}"

// template is PromQL in which {range} stands for a duration, and $model and $served, the
// last between the braces of a series, for the labels that are asked for: those of series
// that call the model model, and of series that call it model_name.
type template string

// query returns the PromQL for a range and the model and instance of c.
func (t template) query(c *Config, within string) string {
	replace := []string{rangeMark, within}
	for mark, label := range map[string]string{"$model": "model", "$served": "model_name"} {
		if labels := c.matchers(label); labels != "" {
			replace = append(replace, mark, labels)
		} else {
			replace = append(replace, ","+mark, "", "{"+mark+"}", "")
		}
	}
	// In one pass: what is put in may look like a mark.
	return strings.NewReplacer(replace...).Replace(string(t))
}

// matchers returns the matchers of labels that c asks for, given what a series calls its
// model. Frontends publish names of models in lower case.
func (c *Config) matchers(model string) string {
	var out []string
	if c.Model != "" {
		out = append(out, model+"=~"+strconv.Quote("(?i:"+regexp.QuoteMeta(c.Model)+")"))
	}
	if c.Instance != "" {
		out = append(out, "instance="+strconv.Quote(c.Instance))
	}
	return strings.Join(out, ",")
}

// ranged reports whether the expression looks back over a range.
func (t template) ranged() bool { return strings.Contains(string(t), rangeMark) }

var seriesName = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{`)

// names returns the series that the expression needs, each once.
func (t template) names() []string {
	var out []string
	for _, m := range seriesName.FindAllStringSubmatch(string(t), -1) {
		if !slices.Contains(out, m[1]) {
			out = append(out, m[1])
		}
	}
	return out
}
