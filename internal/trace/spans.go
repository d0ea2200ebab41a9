package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/nvext"
	"github.com/stator-ai/stator/trie"
)

// Span returns the request as an LLM call of a run, from which a prediction trie can be
// built, and whether it is one: only a request that was completed is, with a prefix id or a
// session id to tell its run, and the time that it took.
//
// A prefix id such as run42-d1, or run42-d1/branch, says that the run is run42, and how deep
// in it the call was made: its path is d1. Where there is no such ending the run is the
// whole id, and the path d0. Runs of different API keys are different. Calls with one prefix
// id count as those of one invocation of a function. Of several answers to one request, the
// length is their mean.
func (r *Row) Span() (trie.Span, bool) {
	s, why := r.span()
	return s, why == ""
}

// notSpan is why a row is no span; empty if it is one.
type notSpan string

const (
	notCompleted notSpan = "not completed"
	withoutRun   notSpan = "without a prefix id or a session id"
	withoutEnd   notSpan = "without the time that it took"
)

func (r *Row) span() (trie.Span, notSpan) {
	switch {
	case r.Outcome != OutcomeCompleted:
		return trie.Span{}, notCompleted
	case r.TotalTimeMS == nil || !(*r.TotalTimeMS >= 0):
		return trie.Span{}, withoutEnd
	}
	function, run, depth := r.SessionID, r.SessionID, "d0"
	if r.Hints != nil && r.Hints.PrefixID != nil && *r.Hints.PrefixID != "" {
		function = *r.Hints.PrefixID
		run, depth = splitPrefix(function)
	}
	if run == "" {
		return trie.Span{}, withoutRun
	}
	if r.Key != "" {
		run = r.Key + ":" + run
	}
	took := min(float64(*r.TotalTimeMS), float64(maxMillis))
	start := time.UnixMicro(r.ArrivalUS).UTC()
	s := trie.Span{
		RunID:        run,
		SpanID:       r.RequestID,
		Kind:         trie.KindLLM,
		Name:         r.Model,
		Path:         []string{depth},
		FunctionID:   function,
		Start:        start,
		End:          start.Add(time.Duration(math.Round(took * float64(time.Millisecond)))),
		PromptTokens: &r.InputTokens,
		CachedTokens: r.CachedTokens,
		Status:       "ok",
	}
	if r.EngineInputTokens != nil {
		s.PromptTokens = r.EngineInputTokens
	}
	if r.Hints != nil && r.Hints.PrefixID != nil {
		s.PrefixID = *r.Hints.PrefixID
	}
	if r.OutputTokens != nil {
		each := *r.OutputTokens / (max(1, r.Prompts) * max(1, r.Choices))
		s.CompletionTokens = &each
	}
	if r.TTFTMS != nil {
		ttft := float64(*r.TTFTMS)
		s.TTFTMS = &ttft
	}
	return s, ""
}

// splitPrefix returns the run of a prefix id, and the depth that it names.
func splitPrefix(id string) (run, depth string) {
	const mark = "-d"
	for i := 1; i < len(id); i++ { // a run has a name
		if !strings.HasPrefix(id[i:], mark) {
			continue
		}
		end := i + len(mark)
		for end < len(id) && id[end] >= '0' && id[end] <= '9' {
			end++
		}
		if end > i+len(mark) && (end == len(id) || id[end] == '/') {
			return id[:i], id[i+1 : end]
		}
	}
	return id, "d0"
}

// SpanRows counts what [ReadSpans] read.
type SpanRows struct {
	// Spans is how many rows are LLM calls of a run.
	Spans int
	// NotCompleted, WithoutRun and WithoutEnd are those for which [Row.Span] returns
	// false.
	NotCompleted, WithoutRun, WithoutEnd int
	// TooLong are lines above [MaxLine], CutOff those that were not written to their end.
	TooLong, CutOff int
}

// ReadSpans calls add with the span of each row of a recording that has one, plain or
// compressed as for [Read], and counts the others. Files of rows can be concatenated, and
// the last row may be cut off. A trace in another format is an error, because it does not
// say which requests make a run. A fault in a line is a *[LineError]; an error of add is
// returned as it is.
func ReadSpans(r io.Reader, add func(trie.Span) error) (SpanRows, error) {
	var n SpanRows
	plain, err := decompress(r)
	if err != nil {
		return n, err
	}
	defer plain.Close()
	lines := newLineReader(plain, MaxLine)
	for lines.next() {
		if lines.long {
			n.TooLong++
			continue
		}
		row, cut, err := spanRow(lines)
		n.CutOff += cut
		if err != nil {
			return n, lines.fault(err)
		}
		if row == nil {
			continue
		}
		s, why := row.span()
		switch why {
		case notCompleted:
			n.NotCompleted++
		case withoutRun:
			n.WithoutRun++
		case withoutEnd:
			n.WithoutEnd++
		default:
			n.Spans++
			if err := add(s); err != nil {
				return n, err
			}
		}
	}
	if errors.Is(lines.err, io.ErrUnexpectedEOF) {
		n.CutOff++
	} else if lines.err != io.EOF {
		return n, lines.fault(lines.err)
	}
	return n, nil
}

// spanRow reads of a row what makes a span. The row is nil where the line was cut off; cut
// is how many were, which can be in front of a whole one where files were put together.
func spanRow(line *lineReader) (row *Row, cut int, err error) {
	o, err := openai.ParseObject(line.text)
	var syntax *openai.SyntaxError
	if errors.As(err, &syntax) && bytes.HasPrefix(line.text, rowStart) {
		next := bytes.LastIndex(line.text, rowStart)
		if next == 0 && !line.cut {
			return nil, 0, err
		}
		cut = max(1, bytes.Count(line.text, rowStart)-1)
		if next == 0 {
			return nil, cut, nil
		}
		if o, err = openai.ParseObject(line.text[next:]); err != nil && line.cut {
			return nil, cut + 1, nil
		}
	}
	if err != nil {
		return nil, cut, err
	}
	row, err = parseSpanRow(&o)
	return row, cut, err
}

func parseSpanRow(o *openai.Object) (*Row, error) {
	if schema, _ := o.Get("schema").Text(); schema != Schema {
		return nil, notOurs(o)
	}
	outcome, err := text("outcome", o.Get("outcome"))
	row := &Row{Outcome: Outcome(outcome)}
	if err != nil || row.Outcome != OutcomeCompleted {
		return row, err // of which nothing else has to make sense
	}
	for _, m := range []struct {
		name string
		into *string
	}{
		{"request_id", &row.RequestID}, {"model", &row.Model}, {"key", &row.Key}, {"session_id", &row.SessionID},
	} {
		if *m.into, err = text(m.name, o.Get(m.name)); err != nil {
			return nil, err
		}
	}
	if v := o.Get("hints"); v.Present() {
		hints, err := object(o, "hints")
		if err != nil {
			return nil, err
		}
		id, err := text("prefix_id", hints.Get("prefix_id"))
		if err != nil {
			return nil, in("hints", err)
		}
		row.Hints = &Hints{PrefixID: &id}
	}
	arrival, err := instant("arrival_us", o.Get("arrival_us"), time.Microsecond)
	if err != nil {
		return nil, err
	}
	row.ArrivalUS = arrival.Microseconds()
	for _, m := range []struct {
		name string
		into **nvext.Float
	}{{"ttft_ms", &row.TTFTMS}, {"total_time_ms", &row.TotalTimeMS}} {
		if v := o.Get(m.name); v.Present() {
			d, err := millis(m.name, v)
			if err != nil {
				return nil, err
			}
			*m.into = MS(d)
		}
	}
	var input, prompts, choices *int
	for _, m := range []struct {
		name string
		into **int
	}{
		{"input_tokens", &input}, {"engine_input_tokens", &row.EngineInputTokens},
		{"prompts", &prompts}, {"choices", &choices},
		{"output_tokens", &row.OutputTokens}, {"cached_tokens", &row.CachedTokens},
	} {
		if v := o.Get(m.name); v.Present() {
			n, err := count(m.name, v, 0, math.MaxInt32)
			if err != nil {
				return nil, err
			}
			*m.into = &n
		}
	}
	row.InputTokens, row.Prompts, row.Choices = valueOr0(input), valueOr0(prompts), valueOr0(choices)
	return row, nil
}

func valueOr0(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// notOurs says why the lines of another format cannot be used.
func notOurs(o *openai.Object) error {
	t, err := detect(o, ReadOptions{}, readLimits.tokens)
	if err != nil {
		return err
	}
	switch t := t.(type) {
	case *mooncake:
		return errors.New("expected rows of stator serve, got Mooncake's format, which does not say which requests make a run")
	case *recording:
		return fmt.Errorf("expected rows of stator serve, got those of %s, from which runs are not read", t.format)
	default:
		return fmt.Errorf("expected rows of stator serve, with schema %s", Schema)
	}
}

// Decompress returns what r holds: decompressed if it begins like a file of gzip or zstd,
// or else as it is. Closing it does not close r.
func Decompress(r io.Reader) (io.ReadCloser, error) { return decompress(r) }

// Add adds the counts of another file.
func (n *SpanRows) Add(o SpanRows) {
	n.Spans += o.Spans
	n.NotCompleted += o.NotCompleted
	n.WithoutRun += o.WithoutRun
	n.WithoutEnd += o.WithoutEnd
	n.TooLong += o.TooLong
	n.CutOff += o.CutOff
}
