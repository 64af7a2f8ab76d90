// Package eventstest tests publishers and handlers without sleeping: it ticks a
// queue, brings retries forward and runs a consumer batch by batch, and can end a
// consumer at the points where a process may die. It needs a real database with
// PgQue in it and a login with pgque_admin.
package eventstest

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/internal/crash"
)

// Tick cuts what was sent to the queue into a batch now, whatever the queue's
// settings say: one that is paused, or ticked from elsewhere, is so again after it.
// It must not be called with the transaction that sent: a tick does not see events
// that are not committed.
func Tick(t testing.TB, db events.DB, queue string) {
	t.Helper()
	var held bool
	err := db.QueryRow(t.Context(), `select exists (select from pgque.queue
		where queue_name = $1::text and (queue_ticker_paused or queue_external_ticker))`, queue).Scan(&held)
	switch {
	case err == nil && held:
		err = tickHeld(t.Context(), db, queue)
	case err == nil:
		err = tick(t.Context(), db, queue)
	}
	if err != nil {
		t.Fatalf("tick queue %q: %v", queue, err)
	}
}

func tick(ctx context.Context, db events.DB, queue string) error {
	for _, sql := range []string{"select pgque.force_tick($1::text)", "select pgque.ticker($1::text)"} {
		if _, err := db.Exec(ctx, sql, queue); err != nil {
			return err
		}
	}
	return nil
}

// tickHeld ticks a queue that PgQue refuses to tick. Nobody else sees it released.
func tickHeld(ctx context.Context, db events.DB, queue string) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	released, err := events.EnsureQueue(ctx, tx, queue, events.Settings{"ticker_paused": "false", "external_ticker": "false"})
	if err != nil {
		return err
	}
	if err := tick(ctx, tx, queue); err != nil {
		return err
	}
	held := events.Settings{}
	for _, setting := range released.Changed {
		held[setting.Name] = setting.From
	}
	if _, err := events.EnsureQueue(ctx, tx, queue, held); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// RetryNow makes every retry that waits in the queue due, puts them back into the
// queue and ticks. It returns how many there were.
func RetryNow(t testing.TB, db events.DB, queue string) int {
	t.Helper()
	due, err := db.Exec(t.Context(), `update pgque.retry_queue set ev_retry_after = '-infinity'
		from pgque.queue where queue_id = ev_queue and queue_name = $1::text`, queue)
	if err != nil {
		t.Fatalf("make retries of queue %q due: %v", queue, err)
	}
	for moved := 1; moved > 0; {
		if err := db.QueryRow(t.Context(), "select pgque.maint_retry_events()").Scan(&moved); err != nil {
			t.Fatalf("move retries: %v", err)
		}
	}
	Tick(t, db, queue)
	return int(due.RowsAffected())
}

// Step has the consumer handle one batch, if there is one, and returns the number
// of its events.
func Step(t testing.TB, c *events.Consumer) int {
	t.Helper()
	n, err := c.Step(t.Context())
	if err != nil {
		t.Fatalf("step: %v", err)
	}
	return n
}

// Drain ticks, then has the consumer handle batches until none has an event. It
// returns the number of events. Retries stay where they are; see RetryNow.
func Drain(t testing.TB, db events.DB, queue string, c *events.Consumer) int {
	t.Helper()
	Tick(t, db, queue)
	all := 0
	for {
		n := Step(t, c)
		if n == 0 {
			return all
		}
		all += n
	}
}

// Point is where a consumer can be made to die.
type Point string

// The points, in the order in which a batch passes them.
const (
	Opened   Point = crash.Opened   // the batch is open, nothing was read
	Received Point = crash.Received // events were read, no handler ran
	Booked   Point = crash.Booked   // the crash guard has booked the next event
	Handled  Point = crash.Handled  // a handler has returned
	Settling Point = crash.Settling // every handler has returned, nothing is settled
	Settled  Point = crash.Settled  // outcomes and ack are written, not committed
	Acked    Point = crash.Acked    // the batch is committed
)

// Points are all of them.
var Points = []Point{Opened, Received, Booked, Handled, Settling, Settled, Acked}

// Crashed is what Run and Step return after a crash.
var Crashed = crash.Err

// CrashAt gives a context for Run or Step in which the consumer dies when it
// passes the point for the nth time, from 1. Nothing that a killed process could
// not do is done after it.
func CrashAt(ctx context.Context, at Point, nth int) context.Context {
	var passed atomic.Int64 // workers pass at the same time
	return crash.With(ctx, func(point string) bool {
		return point == string(at) && passed.Add(1) == int64(nth)
	})
}

// CrashWhen gives a context in which the consumer dies at the point when the
// function says so. With more than one worker it is called by several at once.
func CrashWhen(ctx context.Context, at Point, when func() bool) context.Context {
	return crash.With(ctx, func(point string) bool { return point == string(at) && when() })
}
