// Package fault is the vocabulary of failures that every part of pgque-vendor
// shares: what class of failure it was, what to tell the person, and the exact
// commands that help. The command maps a Class to its exit code; nothing else
// in the program knows about exit codes.
package fault

import (
	"errors"
	"fmt"
)

// Class says what kind of failure an error is. Its number is the exit code
// that the command documents for it.
type Class int

// The classes, in the order of the exit-code table in the command's help.
const (
	Finding   Class = 1 // a check found something
	Usage     Class = 2 // usage, configuration or the local machine
	Upstream  Class = 3 // upstream not reachable, or it refused
	Database  Class = 4 // database not reachable in time, or login refused
	Integrity Class = 5 // bytes, hash, object id, tag or repository are wrong
	Policy    Class = 6 // refused by policy; nothing was changed
	SQL       Class = 7 // SQL failed, or the verification after it
)

// Error is a failure for a person to read. Text is lower case, without a full
// stop, with the thing in quotes and the cause last. Hints are whole commands
// or short sentences that say what to do now, one to a line.
type Error struct {
	Class Class
	Text  string
	Hints []string
	Err   error // the cause, where a caller may match it; its text is already in Text
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause given with %w, or nil.
func (e *Error) Unwrap() error { return e.Err }

// New makes an Error of a class. The format takes %w as fmt.Errorf does.
func New(class Class, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Class: class, Text: err.Error(), Err: errors.Unwrap(err)}
}

// Hint adds a line that says what to do now, and returns the same error.
func (e *Error) Hint(format string, args ...any) *Error {
	e.Hints = append(e.Hints, fmt.Sprintf(format, args...))
	return e
}

// ClassOf returns the class of the first Error in err's chain, or Usage for an
// error that has none: what nobody classified is the local machine's.
func ClassOf(err error) Class {
	var f *Error
	if errors.As(err, &f) {
		return f.Class
	}
	return Usage
}

// Is reports whether err is a failure of the class.
func Is(err error, class Class) bool {
	var f *Error
	return errors.As(err, &f) && f.Class == class
}
