package events_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
)

// goexit is what t.FailNow does.
type goexitError struct{}

func (goexitError) Error() string { runtime.Goexit(); return "" }

// asPanics is an error whose As method panics, as one of a nil pointer does.
type asPanics struct{}

func (asPanics) Error() string { return "as" }
func (asPanics) As(any) bool   { panic("nil pointer") }

// A function of the user's that ends its goroutine elsewhere than in a handler ends
// the work on the batch: the events that its worker had not come to are not acked.
func TestGoexitOutsideAHandler(t *testing.T) {
	t.Parallel()
	var once atomic.Bool
	exit := func() {
		if once.CompareAndSwap(false, true) {
			runtime.Goexit()
		}
	}
	fails := func(context.Context, *events.Event) error { return errors.New("no") }
	for name, c := range map[string]struct {
		cfg    events.ConsumerConfig
		handle events.Handler
	}{
		"Observer": {events.ConsumerConfig{Observer: func(o events.Observation) {
			if _, ok := o.(events.Handled); ok {
				exit()
			}
		}}, fails},
		"Key":     {events.ConsumerConfig{Key: func(*events.Event) string { exit(); return "" }}, fails},
		"Backoff": {events.ConsumerConfig{Backoff: func(int) time.Duration { exit(); return 0 }}, fails},
		"Error": {events.ConsumerConfig{}, func(context.Context, *events.Event) error {
			if once.CompareAndSwap(false, true) {
				return events.Dead(goexitError{})
			}
			return errors.New("no")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			once.Store(false)
			_, pool := setUp(t, newest(t))
			publish(t, pool, 4)
			eventstest.Tick(t, pool, queue)
			if n, err := handler(pool, c.cfg, c.handle).Step(t.Context()); err == nil || !strings.Contains(err.Error(), "Goexit") {
				t.Errorf("Step = %d, %v; want an error about Goexit", n, err)
			}
			var got tally
			eventstest.Drain(t, pool, queue, handler(pool, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error { got.add(e); return nil }))
			if distinct, _ := got.count(); distinct != 4 {
				t.Errorf("%d of 4 events came after it: %v", distinct, got.order())
			}
		})
	}
}

// Whatever the error is that a handler returns, it is that event's failure.
func TestErrorsThatPanic(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	publish(t, pool, 2)
	c := handler(pool, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error {
		if string(e.Payload) == "1" {
			return asPanics{}
		}
		return nil
	})
	if n := eventstest.Drain(t, pool, queue, c); n != 2 || value[int](t, pool, retries) != 1 {
		t.Errorf("%d events, %d retries; want 2 and 1", n, value[int](t, pool, retries))
	}
}

// Skip says that nothing is wrong. An error that holds more than that is a failure.
func TestSkipIsNoExcuse(t *testing.T) {
	t.Parallel()
	real := errors.New("real")
	for _, c := range []struct {
		err  error
		want events.Outcome
	}{
		{events.Skip, events.OutcomeSkipped},
		{fmt.Errorf("not ours: %w", events.Skip), events.OutcomeSkipped},
		{errors.Join(real, events.Skip), events.OutcomeRetried},
		{fmt.Errorf("%w, %w", events.Skip, real), events.OutcomeRetried},
		{events.Dead(events.Skip), events.OutcomeDead},
		{events.RetryAfter(0, events.Skip), events.OutcomeRetried},
	} {
		_, pool := setUp(t, newest(t))
		publish(t, pool, 1)
		var got events.Outcome
		cfg := events.ConsumerConfig{Observer: func(o events.Observation) {
			if h, ok := o.(events.Handled); ok {
				got = h.Outcome
			}
		}}
		eventstest.Drain(t, pool, queue, handler(pool, cfg, func(context.Context, *events.Event) error { return c.err }))
		if got != c.want {
			t.Errorf("%v (%T): %s, want %s", c.err, c.err, got, c.want)
		}
	}
}

// An event belongs to its handler, which may overwrite it: what is settled is the
// event that was delivered.
func TestHandlerOverwritesItsEvent(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	publish(t, pool, 2)
	c := handler(pool, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error {
		*e = events.Event{ID: 4711, Attempt: 99}
		return errors.New("no")
	})
	if n := eventstest.Drain(t, pool, queue, c); n != 2 || value[int](t, pool, retries) != 2 {
		t.Errorf("%d events, %d retries; want 2 and 2", n, value[int](t, pool, retries))
	}
}

// A Key or a Backoff that panics does so in the log, and its event goes on without.
func TestKeyAndBackoffThatPanic(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	publish(t, pool, 2)
	eventstest.Tick(t, pool, queue)
	r := start(t, pool, events.ConsumerConfig{
		Key:     func(*events.Event) string { panic("no key") },
		Backoff: func(int) time.Duration { panic("no pause") },
	}, func(context.Context, *events.Event) error { return errors.New("no") })
	until(t, "both retries", func() bool { return value[int](t, pool, retries) == 2 })
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if keys, pauses := r.log.count("no key"), r.log.count("no pause"); keys != 1 || pauses != 1 {
		t.Errorf("the log has %d lines on Key and %d on Backoff, want one of each for the batch", keys, pauses)
	}
}
