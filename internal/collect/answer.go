package collect

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Answer is what Prometheus says to a query.
type Answer struct {
	Series []Series
	// Warnings are what it says besides.
	Warnings []string
}

// Series is one series of an [Answer]. One that is asked for at an instant has one sample.
type Series struct {
	Labels  map[string]string
	Samples []Sample
	// Unread is how many samples were no numbers: native histograms, or anything else.
	Unread int
}

// Sample is a value, which may be NaN or infinite, at a time in seconds since 1970.
type Sample struct{ Time, Value float64 }

// QueryError is a query that Prometheus, or something in front of it, refused.
type QueryError struct {
	Status  int    // of HTTP; 200 if the answer itself tells of an error
	Type    string // Prometheus' word for it, as bad_data; empty if it has none
	Message string
}

// Error returns the status, if it says anything, and what Prometheus said.
func (e *QueryError) Error() string {
	text := ""
	if e.Status != http.StatusOK {
		text = fmt.Sprintf("status %d %s", e.Status, http.StatusText(e.Status))
	}
	for _, part := range []string{e.Type, e.Message} {
		if part == "" {
			continue
		}
		if text != "" {
			text += ": "
		}
		text += part
	}
	if text == "" {
		return "Prometheus reports an error without saying which"
	}
	return text
}

// envelope is around everything that Prometheus answers.
type envelope struct {
	Status    string          `json:"status"`
	Data      json.RawMessage `json:"data"`
	ErrorType string          `json:"errorType"`
	Error     string          `json:"error"`
	Warnings  []string        `json:"warnings"`
	Infos     []string        `json:"infos"`
}

// maxMessage bounds what an error repeats of an answer.
const maxMessage = 300

// refusal returns the error that an answer tells of.
func (e *envelope) refusal(status int) *QueryError {
	return &QueryError{Status: status, Type: shorten(e.ErrorType), Message: shorten(e.Error)}
}

func shorten(text string) string {
	if len(text) > maxMessage {
		return text[:maxMessage] + "…"
	}
	return text
}

// open returns the data of an answer with status 200.
func (e *envelope) open(body []byte) error {
	if err := json.Unmarshal(body, e); err != nil {
		return fmt.Errorf("expected the JSON of Prometheus: %w", err)
	}
	if e.Status != "success" {
		return e.refusal(http.StatusOK)
	}
	if len(e.Data) == 0 {
		return errors.New("expected data in the answer, found none")
	}
	return nil
}

// parseAnswer reads the answer to a query. An error that the answer tells of is a
// [*QueryError].
func parseAnswer(body []byte) (*Answer, error) {
	var e envelope
	if err := e.open(body); err != nil {
		return nil, err
	}
	var data struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return nil, fmt.Errorf("data: expected the result of a query: %w", err)
	}
	a := &Answer{Warnings: append(e.Warnings, e.Infos...)}
	switch data.ResultType {
	case "vector", "matrix":
		var rows []struct {
			Metric     map[string]string `json:"metric"`
			Value      json.RawMessage   `json:"value"`
			Values     []json.RawMessage `json:"values"`
			Histograms []json.RawMessage `json:"histograms"`
		}
		if err := json.Unmarshal(data.Result, &rows); err != nil {
			return nil, fmt.Errorf("result: expected a list of series: %w", err)
		}
		for _, row := range rows {
			s := Series{Labels: row.Metric, Unread: len(row.Histograms)}
			if data.ResultType == "vector" {
				row.Values = []json.RawMessage{row.Value}
			}
			s.read(row.Values)
			a.Series = append(a.Series, s)
		}
	case "scalar":
		var s Series
		s.read([]json.RawMessage{data.Result})
		a.Series = append(a.Series, s)
	default:
		return nil, fmt.Errorf("resultType: expected vector, matrix or scalar, got %q", shorten(data.ResultType))
	}
	return a, nil
}

// read appends samples, each of which is a time and a value in quotes.
func (s *Series) read(raw []json.RawMessage) {
	for _, r := range raw {
		var pair []json.RawMessage
		var at float64
		var text string
		if json.Unmarshal(r, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[0], &at) != nil || json.Unmarshal(pair[1], &text) != nil {
			s.Unread++
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			s.Unread++
			continue
		}
		s.Samples = append(s.Samples, Sample{at, v})
	}
}

// parseNames reads the answer to a question for the values of a label.
func parseNames(body []byte) ([]string, error) {
	var e envelope
	if err := e.open(body); err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal(e.Data, &names); err != nil {
		return nil, fmt.Errorf("data: expected a list of names: %w", err)
	}
	return names, nil
}
