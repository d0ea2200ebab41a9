package trace

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/nvext"
)

// WriteRows writes a trace as rows of completed requests for a model, with
// hashes that mean something only within the trace: those of partial last blocks
// are among them. What a trace does not hold, such as decisions, is absent.
// Arrivals are counted from the epoch, in whole microseconds; [Read] counts them
// from the first and sorts by them. Delays that are known come back as they are.
//
// The times of rows are those of a clock, so that a request which comes sooner
// after the one it follows than its delay says is an error, as is one whose row
// would be above [MaxLine].
func WriteRows(w io.Writer, t *Trace, model string) error {
	if model == "" {
		return errors.New("model: expected a name")
	}
	arrivals, took, err := t.times()
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 256<<10)
	sessions := t.chains()
	var line []byte
	for i := range t.Requests {
		r := &t.Requests[i]
		row := Row{
			RequestID:    t.name(i),
			Model:        cmp.Or(r.Model, model),
			Endpoint:     "completions",
			ArrivalUS:    arrivals[i].Microseconds(),
			SessionID:    sessions[i],
			Hints:        r.Hints,
			InputTokens:  r.Input,
			TokenSource:  "none",
			BlockHashes:  t.hashes(i),
			OutputTokens: &r.Output,
			TotalTimeMS:  took[i],
			Outcome:      OutcomeCompleted,
			Status:       200,
		}
		if row.BlockHashes != nil {
			row.BlockSize = t.BlockSize
		}
		if line, err = row.AppendJSON(line[:0]); err != nil {
			return err
		}
		if len(line) > MaxLine {
			return fmt.Errorf("request %s: %d blocks need a line of more than %d MiB", row.RequestID, len(row.BlockHashes), MaxLine>>20)
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// name returns the id of a request, or its number if it has none.
func (t *Trace) name(i int) string { return cmp.Or(t.Requests[i].ID, strconv.Itoa(i+1)) }

// hashes returns the hashes of a request's blocks: of all that have an id, and if
// there are some, of all full blocks.
func (t *Trace) hashes(i int) Hashes {
	r := &t.Requests[i]
	if len(r.Blocks) == 0 {
		return nil
	}
	c := t.Content(i, t.BlockSize)
	out := make(Hashes, max(len(r.Blocks), r.Input/t.BlockSize))
	for k := range out {
		out[k] = kv.BlockID(mix(c.at(k)))
	}
	return out
}

// times returns when each request arrived, in whole microseconds, and how long it
// took, where the delay of the one after it says so.
func (t *Trace) times() ([]time.Duration, []*nvext.Float, error) {
	arrivals := make([]time.Duration, len(t.Requests))
	took := make([]*nvext.Float, len(t.Requests))
	for i, p := range t.Previous() {
		r := &t.Requests[i]
		arrivals[i] = r.Arrival.Truncate(time.Microsecond)
		if p < 0 {
			continue
		}
		if !r.DelayKnown {
			arrivals[i] = max(arrivals[i], arrivals[p])
			continue
		}
		if gap := r.Arrival - t.Requests[p].Arrival; gap < r.Delay {
			return nil, nil, fmt.Errorf("request %s: arrives %v after request %s, which it follows with a delay of %v: rows can hold a delay only as part of the time between two arrivals",
				t.name(i), gap, t.name(p), r.Delay)
		}
		// The delay is exact, so the arrival may have to be in the microsecond after.
		sent := arrivals[p] + r.Delay
		arrivals[i] = max(arrivals[i], (sent + time.Microsecond - 1).Truncate(time.Microsecond))
		ms := nvext.Float(float64(arrivals[i]-sent) / float64(time.Millisecond))
		took[p] = &ms
	}
	return arrivals, took, nil
}
