package trie

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ReadNATCSV reads what NeMo Agent Toolkit's profiler writes as standardized_data_all.csv: a
// row for each step, with a header. Columns are known by their names: event_type and
// event_timestamp must be there, others may be missing and further ones are passed over. Where
// completion_tokens is missing, empty or nan for an LLM call that ended, Step.OutputTokens is
// -1. It calls run with the steps of each example_number, which are run's to keep. An error of
// run ends the reading and is returned as it is.
//
// The start of what a step ends is that of the row with its UUID. The file does not say
// what a step happened in, so that Step.ParentID is empty: what ran beside what cannot be
// seen from it, and a [Builder] takes [Weights].Parallel as 0 for such a run.
//
// The profiler writes the rows of an example one after the other. Where they are not, as in
// a file that was sorted by time, all is right as well: examples are handed over at the end
// of the file, in the order of their first rows, and before that only where the rows of
// others that are held have become more than 262,144. Then it is the example's that had no
// row for longest; another row of that is an error.
func ReadNATCSV(r io.Reader, run func([]Step) error) error {
	limit := &recordLimit{r: r, left: maxRecord}
	rows := csv.NewReader(limit)
	rows.ReuseRecord = true
	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return errors.New("line 1: expected a header with event_type and event_timestamp, got nothing")
	}
	if err != nil {
		return err
	}
	columns, err := natColumns(header)
	if err != nil {
		return err
	}
	examples := newGroups(maxHeld, func(steps []Step) error {
		pairUp(steps)
		return run(steps)
	})
	names := make(interned)
	for {
		limit.left = maxRecord
		record, err := rows.Read()
		if err == io.EOF {
			return examples.close()
		}
		if err != nil {
			return err
		}
		line, _ := rows.FieldPos(0)
		step, err := columns.step(record, names)
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		var late *endedError
		if err := examples.add(names.string([]byte(columns.example.of(record))), step); errors.As(err, &late) {
			return fmt.Errorf("line %d: %w", line, err)
		} else if err != nil {
			return err
		}
	}
}

// maxRecord is the longest row, in bytes.
const maxRecord = 256 << 20

// recordLimit keeps a quote that is not closed from taking the rest of a file into memory.
type recordLimit struct {
	r    io.Reader
	left int
}

func (l *recordLimit) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("expected rows of at most %d MiB; a quote may not be closed", maxRecord>>20)
	}
	n, err := l.r.Read(p)
	l.left -= n
	return n, err
}

// column is the place of a column in a row; negative where there is no such column.
type column int

func (c column) of(record []string) string {
	if c < 0 {
		return ""
	}
	return record[c]
}

// natCSV is where the columns are.
type natCSV struct {
	event, time, example, tokens     column
	function, functionID             column
	parentFunction, parentFunctionID column
	uuid                             column
}

func natColumns(header []string) (natCSV, error) {
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	find := func(name string) column { return column(slices.Index(header, name)) }
	c := natCSV{
		event:            find("event_type"),
		time:             find("event_timestamp"),
		example:          find("example_number"),
		tokens:           find("completion_tokens"),
		function:         find("function_name"),
		functionID:       find("function_id"),
		parentFunction:   find("parent_function_name"),
		parentFunctionID: find("parent_function_id"),
		uuid:             find("UUID"),
	}
	switch {
	case c.event < 0:
		return c, errors.New("line 1: event_type: expected a column of that name, got none")
	case c.time < 0:
		return c, errors.New("line 1: event_timestamp: expected a column of that name, got none")
	}
	return c, nil
}

// step returns the step of a row. It shares nothing with record.
func (c *natCSV) step(record []string, names interned) (Step, error) {
	text := func(at column) string { return names.string([]byte(at.of(record))) }
	s := Step{
		Type: EventType(text(c.event)),
		UUID: text(c.uuid),
		Function: Invocation{
			ID:         text(c.functionID),
			Name:       text(c.function),
			ParentID:   text(c.parentFunctionID),
			ParentName: text(c.parentFunction),
		},
	}
	if s.Type == "" {
		return s, errors.New("event_type: expected the type of an event, got nothing")
	}
	var err error
	if s.Time, err = strconv.ParseFloat(c.time.of(record), 64); err != nil && !errors.Is(err, strconv.ErrRange) {
		return s, fmt.Errorf("event_timestamp: expected seconds, got %.40q", c.time.of(record))
	}
	tokens := c.tokens.of(record)
	if tokens == "" || strings.EqualFold(tokens, "nan") {
		if s.Type == LLMEnd {
			s.OutputTokens = -1
		}
		return s, nil
	}
	f, err := strconv.ParseFloat(tokens, 64)
	n, whole := wholeNumber(f)
	if err != nil || !whole {
		return s, fmt.Errorf("completion_tokens: expected a whole number that is not negative, got %.40q", tokens)
	}
	s.OutputTokens = n
	return s, nil
}

// pairUp sets when that began which steps end.
func pairUp(steps []Step) {
	type thing struct{ what, uuid string }
	starts := make(map[thing]*float64)
	for i := range steps {
		s := &steps[i]
		if what, ok := strings.CutSuffix(string(s.Type), "_START"); ok && s.UUID != "" {
			starts[thing{what, s.UUID}] = &s.Time
		}
	}
	for i := range steps {
		s := &steps[i]
		if what, ok := strings.CutSuffix(string(s.Type), "_END"); ok && s.UUID != "" {
			if t := starts[thing{what, s.UUID}]; t != nil {
				began := *t
				s.Began = &began
			}
		}
	}
}
