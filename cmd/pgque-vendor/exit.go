package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"unicode"

	"github.com/stega/pgque-vendor/internal/fault"
)

// The exit codes, the same for every command. The table stands in the help of
// the root command and in README; a test compares the three.
const exitCodeTable = `Exit codes:
  0    done, or nothing to do; a long-running command that ended cleanly after a signal
  1    a check found something (status, diff, list --check, bootstrap --check, doctor, health)
  2    usage, configuration or the local machine
  3    upstream not reachable, or it refused
  4    database not reachable in time, login refused, or a lock not got in time
  5    integrity: bytes, hash, object id, tag or repository are not what they must be
  6    refused by policy; nothing was changed
  7    SQL failed, or verification after it failed; rolled back
  130  interrupted by SIGINT
  143  interrupted by SIGTERM`

// errFinding ends a command with exit code 1 after it has reported its
// findings itself: there is no failure to print.
var errFinding = errors.New("a check found something")

// errInterrupted is the cause of a command's cancelled context after a signal.
type errInterrupted struct{ signal os.Signal }

func (e errInterrupted) Error() string {
	switch e.signal {
	case os.Interrupt:
		return "interrupted by SIGINT"
	case syscall.SIGHUP:
		return "interrupted by SIGHUP"
	}
	return "interrupted by SIGTERM"
}

// exitCode maps how a command ended to the code that the process returns.
func exitCode(ctx context.Context, err error) int {
	var interrupted errInterrupted
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFinding):
		return int(fault.Finding)
	case errors.As(err, &interrupted), errors.As(context.Cause(ctx), &interrupted):
		return interrupted.code() // whatever broke off: the signal is why
	}
	return int(fault.ClassOf(err))
}

func (e errInterrupted) code() int {
	if e.signal == os.Interrupt {
		return 130
	}
	return 143
}

// printError is the only place that prints a failure. The rules: one line
// "pgque-vendor: error: …", lower case, no full stop, the thing in quotes, the
// cause last; then a line "pgque-vendor: hint: …" for each thing to do now.
func printError(w io.Writer, err error) {
	if err == nil || errors.Is(err, errFinding) {
		return
	}
	fmt.Fprintf(w, "pgque-vendor: error: %s\n", printable(err.Error()))
	var f *fault.Error
	if errors.As(err, &f) {
		for _, h := range f.Hints {
			fmt.Fprintf(w, "pgque-vendor: hint: %s\n", printable(h))
		}
	}
}

// oneLine is printable for a name, which must not look like several lines.
func oneLine(s string) string {
	return printable(strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(s))
}

// printable keeps what a remote or a file says from steering the terminal:
// control characters other than newline and tab, and those that turn the
// direction of writing, are shown escaped.
func printable(s string) string {
	var b strings.Builder
	for _, r := range strings.TrimRight(s, "\n") {
		switch {
		case r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0:
			fmt.Fprintf(&b, "\\x%02x", r)
			continue
		case unicode.Is(unicode.Bidi_Control, r):
			fmt.Fprintf(&b, "\\u%04x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
