package trace

import "strings"

// Skipped counts the rows of a recording that are no part of a [Trace], by the
// reason for it. Its JSON form is a contract.
type Skipped struct {
	// NotRun were refused, or nothing is known of their prompt or their answer.
	NotRun int `json:"not_run"`
	// Several have more than one prompt or more than one answer.
	Several int `json:"several"`
	// TooLong are lines above [MaxLine], or have more tokens than a trace can hold.
	TooLong int `json:"too_long"`
	// CutOff were not written to their end.
	CutOff int `json:"cut_off"`
	// OtherBlockSize have hashes of blocks of another size than was asked for.
	OtherBlockSize int `json:"other_block_size"`
}

// Rows returns how many rows were skipped.
func (s Skipped) Rows() int {
	n := 0
	for why := range reasons {
		n += *s.of(reason(why))
	}
	return n
}

// String says how many rows were skipped and why, as "3 rows skipped: 2 not run,
// 1 cut off".
func (s Skipped) String() string {
	var parts []string
	rows := s.Rows()
	for i, text := range reasons {
		switch n := *s.of(reason(i)); n {
		case 0:
		case rows:
			parts = append(parts, text)
		default:
			parts = append(parts, group(n)+" "+text)
		}
	}
	text := counted(rows, "row") + " skipped"
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

func (s *Skipped) of(why reason) *int {
	return [...]*int{&s.NotRun, &s.Several, &s.TooLong, &s.CutOff, &s.OtherBlockSize}[why]
}

// reason is why a row is skipped: an error that is no fault of the trace.
type reason int

const (
	notRun reason = iota
	several
	tooLong
	cutOff
	otherBlockSize
)

var reasons = [...]string{"not run", "with several prompts or answers", "too long", "cut off", "with blocks of another size"}

func (r reason) Error() string { return reasons[r] }
