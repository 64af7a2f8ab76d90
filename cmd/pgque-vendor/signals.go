package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// burst is how long after a signal further ones are the same wish: a terminal that
// is closed sends SIGHUP twice, "timeout" signals its child and then its child's
// group, and a wrapper passes on the Ctrl-C that the terminal gave to both.
const burst = 500 * time.Millisecond

// notifyContext returns a context that the first SIGINT, SIGTERM or SIGHUP cancels,
// with the signal as its cause. A second one ends the process at once, unless a
// command has put something else there.
func notifyContext(parent context.Context, env *environment) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	onSecond := &atomic.Pointer[func(os.Signal)]{}
	env.onSecondSignal = onSecond
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(signals, syscall.SIGHUP)
	}
	// Without this a write to a pipe that nobody reads ends the process with 141. It
	// is not ignored, which what we start would inherit.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	go eachSignal(signals, func(n int, s os.Signal) {
		second := onSecond.Load()
		switch {
		case n == 1:
			cancel(errInterrupted{s})
		case n == 2 && second != nil:
			(*second)(s)
		default:
			endAtOnce(env.stderr, errInterrupted{s})
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		signal.Stop(pipe)
		close(signals)
		cancel(nil)
	}
}

// eachSignal numbers signals from 1 on and leaves out those that come in a burst.
func eachSignal(signals <-chan os.Signal, do func(n int, s os.Signal)) {
	n, last := 0, time.Time{}
	for s := range signals {
		if n > 0 && time.Since(last) < burst {
			continue
		}
		n, last = n+1, time.Now()
		do(n, s)
	}
}

// endAtOnce says why, unless stderr is stuck, as a terminal can be.
func endAtOnce(stderr io.Writer, why errInterrupted) {
	said := make(chan struct{})
	go func() {
		printError(stderr, why)
		close(said)
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
	os.Exit(why.code())
}
