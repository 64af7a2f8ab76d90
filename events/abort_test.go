package events_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// A second signal while a batch runs under the crash guard is no crash: once the
// handler has returned its event waits for nothing and has lost no attempt, also when
// it was its last.
func TestAbortUnderTheCrashGuard(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		for _, retriesLeft := range []int{5, 0} {
			t.Run(fmt.Sprint(retriesLeft), func(t *testing.T) {
				db, pool := setUp(t, v)
				db.Exec(t, fmt.Sprintf("update pgque.queue set queue_max_retries = %d", retriesLeft))
				publish(t, pool, 3)
				eventstest.Tick(t, pool, queue)
				leaveOpen(t, handler(pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return nil }))

				in := make(chan struct{})
				r := start(t, pool, events.ConsumerConfig{}, func(ctx context.Context, e *events.Event) error {
					if string(e.Payload) == "2" {
						close(in)
						<-ctx.Done()
						return context.Cause(ctx)
					}
					return nil
				})
				<-in
				if n := value[int](t, pool, retries) + value[int](t, pool, dead); n != 1 {
					t.Fatalf("%d bookings while event 2 runs, want 1", n)
				}
				r.c.Abort()
				if err := r.wait(); !errors.Is(err, events.ErrAborted) {
					t.Fatalf("Run = %v, want ErrAborted", err)
				}
				if n := value[int](t, pool, retries) + value[int](t, pool, dead); n != 0 {
					t.Errorf("%d bookings are left", n)
				}
				var got tally
				next := handler(pool, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error {
					if e.Attempt != 1 {
						t.Errorf("event %s comes at attempt %d", e.Payload, e.Attempt)
					}
					got.add(e)
					return nil
				})
				eventstest.Drain(t, pool, queue, next)
				if distinct, all := got.count(); distinct != 3 || all != 3 {
					t.Errorf("handled %v", got.order())
				}
			})
		}
	})
}

// A handler that does not return may still be at work when the next process is: what
// is booked stays booked, and that is said, then and when the event is passed over.
func TestAbortLeavesAHandlerUnderTheCrashGuard(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	publish(t, pool, 2)
	eventstest.Tick(t, pool, queue)
	leaveOpen(t, handler(pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return nil }))
	in, goOn := make(chan struct{}), make(chan struct{})
	defer close(goOn)
	r := start(t, pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error {
		close(in)
		<-goOn
		return nil
	})
	<-in
	r.c.Abort()
	if err := r.wait(); !errors.Is(err, events.ErrAborted) {
		t.Fatalf("Run = %v, want ErrAborted", err)
	}
	if n := value[int](t, pool, retries); n != 1 {
		t.Errorf("%d bookings, want that of the handler that still runs", n)
	}
	if r.log.count("stays booked") != 1 {
		t.Error("it was not said that the booking stays")
	}
	var got tally
	next := start(t, pool, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error { got.add(e); return nil })
	until(t, "event 2", func() bool { n, _ := got.count(); return n == 1 })
	if next.log.count("an event was running when a process ended") != 1 || next.log.count("due=") != 1 {
		t.Error("it was not said that event 1 waits")
	}
	if err := next.end(); err != nil {
		t.Error(err)
	}
}

// What is settled later than the booking is none of the guard's: a retry of an event
// that ran under it survives an abort.
func TestAbortAfterTheCrashGuard(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	publish(t, pool, 1)
	eventstest.Tick(t, pool, queue)
	leaveOpen(t, handler(pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return nil }))
	r := start(t, pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return errors.New("no") })
	until(t, "the retry", func() bool {
		return value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is null") == 1
	})
	r.c.Abort()
	if err := r.wait(); !errors.Is(err, events.ErrAborted) {
		t.Fatalf("Run = %v, want ErrAborted", err)
	}
	if n := value[int](t, pool, retries); n != 1 {
		t.Errorf("%d retries, want 1", n)
	}
}

// leaveOpen leaves the next batch as a process that died would.
func leaveOpen(t *testing.T, c *events.Consumer) {
	t.Helper()
	if _, err := c.Step(eventstest.CrashAt(t.Context(), eventstest.Received, 1)); !errors.Is(err, eventstest.Crashed) {
		t.Fatal(err)
	}
}

// What is observed of an event is what becomes of it: a dead letter where its
// attempts are spent, and no outcome where nothing is settled.
func TestHandledTellsWhatWillBe(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		db, pool := setUp(t, v)
		db.Exec(t, "update pgque.queue set queue_max_retries = 1")
		publish(t, pool, 1)
		eventstest.Tick(t, pool, queue)
		var mu sync.Mutex
		var seen []string
		cfg := events.ConsumerConfig{Observer: func(o events.Observation) {
			mu.Lock()
			defer mu.Unlock()
			if h, ok := o.(events.Handled); ok {
				seen = append(seen, fmt.Sprint(h.Attempt, " ", h.Outcome))
			}
		}}
		in := make(chan struct{})
		r := start(t, pool, cfg, func(ctx context.Context, _ *events.Event) error {
			close(in)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		<-in
		r.c.Abort()
		if err := r.wait(); !errors.Is(err, events.ErrAborted) {
			t.Fatalf("Run = %v, want ErrAborted", err)
		}
		until(t, "the handler's end", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == 1 })
		c := handler(pool, cfg, func(context.Context, *events.Event) error { return errors.New("no") })
		eventstest.Drain(t, pool, queue, c)
		eventstest.RetryNow(t, pool, queue)
		eventstest.Drain(t, pool, queue, c)
		if got, want := fmt.Sprint(seen), "[1 aborted 1 retried 2 dead]"; got != want {
			t.Errorf("observed %s, want %s", got, want)
		}
		if n := value[int](t, pool, dead); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
	})
}

// Abort is for good, and says so whatever it meets.
func TestRunAndStepAfterAbort(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	c := handler(pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return nil })
	c.Abort()
	for range 3 {
		if _, err := c.Step(t.Context()); !errors.Is(err, events.ErrAborted) {
			t.Errorf("Step = %v, want ErrAborted", err)
		}
		if err := c.Run(t.Context()); !errors.Is(err, events.ErrAborted) {
			t.Errorf("Run = %v, want ErrAborted", err)
		}
	}
}
