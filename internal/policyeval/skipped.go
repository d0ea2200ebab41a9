package policyeval

import (
	"fmt"
	"strings"
)

// Reason is why a row is no part of a [Log].
type Reason string

const (
	// NotPlaced: the request was refused before it came to a choice, as one for a model that
	// does not exist.
	NotPlaced Reason = "not_placed"
	// NotCompleted: there was no worker for it, or it was refused, cancelled or failed later.
	NotCompleted Reason = "not_completed"
	// Several: it has more than one prompt or more than one answer.
	Several Reason = "several"
	// Retried: it was placed more than once, and what it took is not one worker's.
	Retried Reason = "retried"
	// NoDecision: the row does not hold all candidates of its attempt.
	NoDecision Reason = "no_decision"
	// NoFirstToken: it is not known when the first token came.
	NoFirstToken Reason = "no_first_token"
	// NoTokenTimes: nor how long what the metric needs took.
	NoTokenTimes Reason = "no_token_times"
	// NoCachedTokens: the engine does not say how much of the prompt was cached.
	NoCachedTokens Reason = "no_cached_tokens"
	// Inconsistent: by its record, what was chosen could not have been.
	Inconsistent Reason = "inconsistent"
	// NotForPolicy: a policy goes by what the row does not hold.
	NotForPolicy Reason = "not_for_policy"
	// OtherModel: the request was for another model than asked for.
	OtherModel Reason = "other_model"
	// TooLong: the line is above [trace.MaxLine].
	TooLong Reason = "too_long"
	// CutOff: the row was not written to its end.
	CutOff Reason = "cut_off"
)

// reasons are in the order of [Skipped.String].
var reasons = []struct {
	reason Reason
	text   string
}{
	{NotPlaced, "not placed"},
	{NotCompleted, "not completed"},
	{Several, "with several prompts or answers"},
	{Retried, "placed more than once"},
	{NoDecision, "without all candidates"},
	{NoFirstToken, "without a first token"},
	{NoTokenTimes, "without times of tokens"},
	{NoCachedTokens, "without cached tokens"},
	{Inconsistent, "with a choice that the record rules out"},
	{NotForPolicy, "without what a policy goes by"},
	{OtherModel, "for another model"},
	{TooLong, "too long"},
	{CutOff, "cut off"},
}

// Skipped counts rows that were left out, by the reason.
type Skipped map[Reason]int

// Rows returns how many rows were left out.
func (s Skipped) Rows() int {
	n := 0
	for _, rows := range s {
		n += rows
	}
	return n
}

// String says how many rows were left out and why, as "3 rows left out: 2 not completed, 1
// cut off".
func (s Skipped) String() string {
	rows := s.Rows()
	var parts []string
	for _, r := range reasons {
		switch n := s[r.reason]; n {
		case 0:
		case rows:
			parts = append(parts, r.text)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, r.text))
		}
	}
	text := counted(rows, "row") + " left out"
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// counted writes a number of things.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
