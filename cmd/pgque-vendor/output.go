package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// output is our standard output. A reader that has seen enough, as in "list | head",
// is no failure: the rest is dropped, and the command goes on to its own exit code.
type output struct{ file *os.File }

func (o output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if brokenPipe(err) {
		return len(p), nil
	}
	return n, err
}

// Fd lets a terminal be recognised.
func (o output) Fd() uintptr { return o.file.Fd() }

// stream is stdout for a command that runs until its reader is gone, which it gets as
// an error.
func (env *environment) stream() io.Writer {
	if o, ok := env.stdout.(output); ok {
		return o.file
	}
	return env.stdout
}

// brokenPipe reports that our own output has lost its reader. A database's socket
// can end with the same error, which is a failure.
func brokenPipe(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p) && p.Path == os.Stdout.Name() && errors.Is(p, syscall.EPIPE)
}
