package trie

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// ReadSpans reads JSON lines of [Span] and calls run with the steps of each run, as a
// [Collector] does.
func ReadSpans(r io.Reader, run func([]Step) error) error {
	c := NewCollector(run)
	if err := c.AddLines(r); err != nil {
		return err
	}
	return c.Close()
}

// Collector puts spans together into runs, and makes of each run the steps that a [Builder]
// takes. Spans of different runs may come by turns and in any order. Not safe for
// concurrent use.
//
// An LLM call that failed or was cancelled had no answer, and whoever wanted one called
// again. It is part of the run's time but none of its calls, and counted in
// [Collector.Unanswered]. A kind that is not known is part of the run's time as well. A span
// that ends before it begins took no time. Where nobody said how long the answer to a call
// was, that is not known of its step either.
//
// Nothing says when a run has ended: runs are handed over by Close in the order in which
// they began, and before that only where the spans of other runs that are held have become
// more than 262,144. Then it is the run's to which nothing was added for longest; what
// comes after that for the same run is an error.
type Collector struct {
	runs       *groups[Span]
	unanswered int
	cutOff     int
}

// NewCollector returns a collector that calls run with the steps of each run, which are
// run's to keep. An error of run is returned, as it is, by the method that made the call;
// the collector is of no use after that.
func NewCollector(run func([]Step) error) *Collector {
	return &Collector{runs: newGroups(maxHeld, func(spans []Span) error { return run(stepsOf(spans)) })}
}

// Add takes in one span, of which it keeps the path. A span without a run is an error.
func (c *Collector) Add(s Span) error {
	if s.RunID == "" {
		return errors.New("run_id: expected a string that is not empty")
	}
	if s.Kind == KindLLM && !s.answered() {
		c.unanswered++
	}
	return c.runs.add(s.RunID, s)
}

// AddLines takes in JSON lines of [Span], until the end of r. Times are RFC 3339 or numbers
// of seconds since 1970. Members that [Span] does not have are passed over. A member that
// is missing or has the wrong type is an error that names its line. A line after the first
// may be cut off, as one is that was being written when its program died: it is left out and
// counted in [Collector.CutOff].
func (c *Collector) AddLines(r io.Reader) error {
	lines := lineReader{in: bufio.NewReaderSize(r, 64<<10)}
	j := &jsonReader{names: make(interned)}
	first := true
	for number := 1; ; number++ {
		start := lines.offset
		line, end := lines.next()
		if end != nil && end != io.EOF && !errors.Is(end, io.ErrUnexpectedEOF) {
			return fmt.Errorf("line %d: %w", number, end)
		}
		if line = bytes.TrimRight(line, " \t\r\n"); len(line) > 0 {
			j.reset(line, number, start)
			var cut cutOff
			switch err := c.addLine(j); {
			case !first && errors.As(err, &cut):
				c.cutOff++
			case err != nil:
				return err
			}
			first = false
		}
		if end != nil {
			return nil
		}
	}
}

// addLine takes in the span that is all there is to read.
func (c *Collector) addLine(j *jsonReader) error {
	s, err := readSpan(j)
	if err != nil {
		return err
	}
	if more, _ := j.more(); more {
		return j.errorf("expected one span on a line, got %q after it", j.buf[j.pos])
	}
	err = c.Add(s)
	var late *endedError
	if errors.As(err, &late) {
		return j.errorf("%w", err)
	}
	return err
}

// maxSpanLine is the longest line of a span, in bytes.
const maxSpanLine = 16 << 20

// lineReader cuts an input into lines.
type lineReader struct {
	in     *bufio.Reader
	offset int64 // of the next line
	long   []byte
}

// next returns a line, its end included, which is valid until the next call. With the last
// line it returns why that is the last.
func (l *lineReader) next() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		l.long = append(l.long[:0], line...)
		for err == bufio.ErrBufferFull {
			line, err = l.in.ReadSlice('\n')
			if len(l.long)+len(line) > maxSpanLine {
				return nil, fmt.Errorf("expected at most %d MiB", maxSpanLine>>20)
			}
			l.long = append(l.long, line...)
		}
		line = l.long
	}
	if l.offset == 0 {
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	l.offset += int64(len(line))
	return line, err
}

// Close hands over the runs that are held. The collector is empty then: a run that it is
// given after that is another, also if an earlier one had the same id. Counts go on.
func (c *Collector) Close() error { return c.runs.close() }

// Unanswered returns how many LLM calls failed or were cancelled.
func (c *Collector) Unanswered() int { return c.unanswered }

// CutOff returns how many spans were not written to their end.
func (c *Collector) CutOff() int { return c.cutOff }

// answered reports whether the span came to a good end, as far as it says.
func (s *Span) answered() bool { return s.Status != "error" && s.Status != "cancelled" }

// maxPath is how many functions a span's path may have.
const maxPath = 1024

func readSpan(j *jsonReader) (Span, error) {
	var s Span
	started, ended := false, false
	err := j.object(func(member []byte) (err error) {
		switch string(member) {
		case "run_id":
			s.RunID, err = j.string()
			return within("run_id", err)
		case "span_id":
			s.SpanID, err = j.maybeString()
			return within("span_id", err)
		case "parent_span_id":
			s.ParentSpanID, err = j.maybeString()
			return within("parent_span_id", err)
		case "kind":
			var kind string
			kind, err = j.string()
			s.Kind = SpanKind(kind)
			return within("kind", err)
		case "name":
			s.Name, err = j.maybeString()
			return within("name", err)
		case "path":
			s.Path, err = readPath(j)
			return within("path", err)
		case "function_id":
			s.FunctionID, err = j.maybeString()
			return within("function_id", err)
		case "parent_function_id":
			s.ParentFunctionID, err = j.maybeString()
			return within("parent_function_id", err)
		case "start":
			s.Start, err = readTime(j)
			started = true
			return within("start", err)
		case "end":
			s.End, err = readTime(j)
			ended = true
			return within("end", err)
		case "completion_tokens":
			s.CompletionTokens, err = j.maybeCount()
			return within("completion_tokens", err)
		case "status":
			s.Status, err = j.maybeString()
			return within("status", err)
		default: // what no step has
			return j.skip()
		}
	})
	missing := func(member, want string) (Span, error) {
		return s, within(member, j.errorf("expected %s, got nothing", want))
	}
	switch {
	case err != nil:
		return s, err
	case s.RunID == "":
		return missing("run_id", "a string")
	case s.Kind == "":
		return missing("kind", "llm, tool or function")
	case !started:
		return missing("start", "a time")
	case !ended:
		return missing("end", "a time")
	}
	return s, nil
}

func readPath(j *jsonReader) ([]string, error) {
	if none, err := j.null(); none || err != nil {
		return nil, err
	}
	path := []string{}
	err := j.array(func(i int) error {
		if i == maxPath {
			return j.errorf("expected at most %d names", maxPath)
		}
		name, err := j.string()
		path = append(path, name)
		return elementError(i, err)
	})
	return path, err
}

// readTime reads a time as text, or as seconds since 1970.
func readTime(j *jsonReader) (time.Time, error) {
	const want = "a time in RFC 3339 or seconds since 1970"
	c, err := j.kind()
	switch {
	case err != nil:
		return time.Time{}, err
	case c == '"':
		if err := j.scanString(true); err != nil {
			return time.Time{}, err
		}
		t, err := time.Parse(time.RFC3339Nano, string(j.text))
		if err != nil {
			return t, j.errorf("expected %s, got %.40q", want, j.text)
		}
		return t, nil
	case c == '{' || c == '[' || c == 't' || c == 'f' || c == 'n':
		return time.Time{}, j.wrong(want)
	}
	f, err := j.number()
	if err != nil {
		return time.Time{}, err
	}
	const year10000 = 253402300800
	if !(math.Abs(f) < year10000) {
		return time.Time{}, j.errorf("expected %s, got %.40s", want, j.text)
	}
	whole, part := math.Modf(f)
	return time.Unix(int64(whole), int64(math.Round(part*1e9))), nil
}

// stepsOf returns the steps of a run, which count their times from the first of its starts.
func stepsOf(spans []Span) []Step {
	zero := spans[0].Start
	for i := range spans {
		if spans[i].Start.Before(zero) {
			zero = spans[i].Start
		}
	}
	steps := make([]Step, 0, 2*len(spans))
	for i := range spans {
		start, end := spans[i].steps(zero)
		steps = append(steps, start, end)
	}
	return steps
}

// steps returns the steps with which a span begins and ends.
func (s *Span) steps(zero time.Time) (start, end Step) {
	began := s.Start.Sub(zero).Seconds()
	start = Step{
		Type:     SpanStart,
		Time:     began,
		UUID:     s.SpanID,
		ParentID: s.ParentSpanID,
		Function: Invocation{ID: s.FunctionID, ParentID: s.ParentFunctionID},
		Path:     s.Path,
	}
	if n := len(s.Path); n > 0 {
		start.Function.Name = s.Path[n-1]
		if n > 1 {
			start.Function.ParentName = s.Path[n-2]
		}
	}
	end = start
	end.Type = SpanEnd
	end.Time = max(began, s.End.Sub(zero).Seconds())
	end.Began = &began
	switch {
	case s.Kind == KindLLM && s.answered():
		start.Type, end.Type = LLMStart, LLMEnd
		end.OutputTokens = -1
		if s.CompletionTokens != nil {
			end.OutputTokens = *s.CompletionTokens
		}
	case s.Kind == KindTool:
		start.Type, end.Type = ToolStart, ToolEnd
	case s.Kind == KindFunction:
		start.Type, end.Type = FunctionStart, FunctionEnd
	}
	return start, end
}
