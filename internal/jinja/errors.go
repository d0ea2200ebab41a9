package jinja

import (
	"errors"
	"fmt"
)

// A SyntaxError says why a template does not compile.
type SyntaxError struct {
	Line    int
	Message string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("template line %d: %s", e.Line, e.Message)
}

// An Error is a failure while rendering: what is a TypeError, an UndefinedError
// or the like in Python. Line is the line of the statement, 0 when there is none.
type Error struct {
	Line    int
	Message string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return "template: " + e.Message
	}
	return fmt.Sprintf("template line %d: %s", e.Line, e.Message)
}

// A RaiseError is what a template raised itself with raise_exception: its author
// refuses the input.
type RaiseError struct{ Message string }

func (e *RaiseError) Error() string { return e.Message }

// A LimitError says which bound of rendering or parsing a template or a value
// went over.
type LimitError struct {
	What string
	Max  int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("template exceeds its limit: %s, at most %d", e.What, e.Max)
}

func errorf(format string, a ...any) error {
	return &Error{Message: fmt.Sprintf(format, a...)}
}

// atLine gives an error the line of the statement it came from, unless it
// already has one.
func atLine(err error, line int) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) && e.Line == 0 {
		e.Line = line
	}
	return err
}
