package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// environment is the outside world as a command sees it. Everything comes in
// through it, so that a test can run a command in process, and nothing below
// cmd reads an environment variable or a standard stream.
type environment struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	lookup func(name string) (string, bool) // an environment variable
	now    func() time.Time
	tty    func(w any) bool // whether a stream is a terminal

	// onSecondSignal is what a second signal does instead of ending the process; run
	// makes it.
	onSecondSignal *atomic.Pointer[func(os.Signal)]

	// Set from the global flags before a command runs.
	quiet   bool
	verbose bool
	color   string // auto, always or never
	log     *slog.Logger

	// Set before a command runs, for the commands of hints.
	command   *cobra.Command
	typed     map[string]*pflag.Flag
	variables map[string]string // by flag, those that gave one its value
}

func processEnvironment() *environment {
	return &environment{
		stdin:  os.Stdin,
		stdout: output{os.Stdout},
		stderr: os.Stderr,
		lookup: os.LookupEnv,
		now:    time.Now,
		tty: func(w any) bool {
			f, ok := w.(interface{ Fd() uintptr })
			return ok && term.IsTerminal(int(f.Fd()))
		},
		color: "auto",
		log:   slog.New(slog.DiscardHandler),
	}
}

// getenv returns an environment variable, or "" when it is not set.
func (env *environment) getenv(name string) string {
	v, _ := env.lookup(name)
	return v
}

// sayf writes a line of talk to stderr, unless --quiet.
func (env *environment) sayf(format string, args ...any) {
	if !env.quiet {
		fmt.Fprintln(env.stderr, printable(fmt.Sprintf(format, args...)))
	}
}

// warnf writes a warning to stderr, also with --quiet: what a person must not
// miss is no talk.
func (env *environment) warnf(format string, args ...any) {
	fmt.Fprintf(env.stderr, "pgque-vendor: warning: %s\n", printable(fmt.Sprintf(format, args...)))
}

// hintf writes a hint to stderr, unless --quiet.
func (env *environment) hintf(format string, args ...any) {
	env.sayf("pgque-vendor: hint: %s", env.again(fmt.Sprintf(format, args...)))
}

// colored reports whether output to w may carry colour.
func (env *environment) colored(w io.Writer) bool {
	switch env.color {
	case "always":
		return true
	case "never":
		return false
	}
	if v, ok := env.lookup("NO_COLOR"); ok && v != "" || env.getenv("TERM") == "dumb" {
		return false
	}
	return env.tty(w)
}
