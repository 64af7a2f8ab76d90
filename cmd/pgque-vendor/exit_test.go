package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
)

func TestExitCode(t *testing.T) {
	interrupted, cancel := context.WithCancelCause(context.Background())
	cancel(errInterrupted{syscall.SIGTERM})
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		want int
	}{
		{"nothing wrong", t.Context(), nil, 0},
		{"a finding", t.Context(), errFinding, 1},
		{"a finding among others", t.Context(), errors.Join(errFinding, errors.New("x")), 1},
		{"nobody classified it", t.Context(), errors.New("x"), 2},
		{"upstream", t.Context(), fault.New(fault.Upstream, "x"), 3},
		{"wrapped", t.Context(), fmt.Errorf("x: %w", fault.New(fault.Integrity, "y")), 5},
		{"SIGINT", t.Context(), errInterrupted{os.Interrupt}, 130},
		{"cancelled by SIGTERM", interrupted, fmt.Errorf("x: %w", context.Canceled), 143},
	} {
		if got := exitCode(tt.ctx, tt.err); got != tt.want {
			t.Errorf("%s: exit code %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestExitCodeTable keeps the one table the same in the help and in README.
func TestExitCodeTable(t *testing.T) {
	help, _, code := runCommand(t, nil, "--help")
	if code != 0 || !strings.Contains(help, exitCodeTable) {
		t.Errorf("--help (exit %d) does not have the table of exit codes", code)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), exitCodeTable) {
		t.Errorf("README.md does not have the table of exit codes that --help prints:\n%s", exitCodeTable)
	}
}

// Only a reader of our own output has seen enough when a pipe breaks.
func TestBrokenPipe(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"nothing wrong", nil, false},
		{"stdout", fmt.Errorf("x: %w", &fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.EPIPE}), true},
		{"a full disk behind stdout", &fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.ENOSPC}, false},
		{"a handler's stdin", &fs.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, false},
		{"a database", fault.New(fault.SQL, "x: %w", &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}), false},
	} {
		if got := brokenPipe(tt.err); got != tt.want {
			t.Errorf("%s: brokenPipe is %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	got := printable("tag \x1b[31mred\x07\u009b \u202e ü\tok\n")
	if strings.ContainsAny(got, "\x1b\x07\u009b\u202e") || !strings.Contains(got, "ü\tok") {
		t.Errorf("printable gives %q", got)
	}
}
