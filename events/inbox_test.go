package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// Effects in another database happen once, through crashes at every point,
// failures in the middle and a second event with the same key.
func TestHandleTx(t *testing.T) {
	for _, point := range eventstest.Points {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			_, pool := setUp(t, newest(t))
			app := pgtest.Database(t).Pool(t)
			if _, err := app.Exec(t.Context(), events.InboxDDL+"create table effect (n int)"); err != nil {
				t.Fatal(err)
			}
			number := events.Define[int]("t")
			var es []events.Event
			for i := range 10 {
				es = append(es, number.New(i))
			}
			es = append(es, number.New(100).WithHeader(events.IdempotencyKey, "job 1"), number.New(100).WithHeader(events.IdempotencyKey, "job 1"))
			if _, err := events.SendBatch(t.Context(), pool, queue, es); err != nil {
				t.Fatal(err)
			}
			failed := false
			c := events.NewConsumer(pool, queue, consumer, events.ConsumerConfig{})
			events.HandleTx(c, app, number, func(ctx context.Context, tx pgx.Tx, _ *events.Event, n int) error {
				if _, err := tx.Exec(ctx, "insert into effect values ($1)", n); err != nil {
					return err
				}
				if n == 5 && !failed {
					failed = true
					return errors.New("after the effect")
				}
				return nil
			})
			eventstest.Tick(t, pool, queue)
			if point == eventstest.Booked {
				_, _ = c.Step(eventstest.CrashAt(t.Context(), eventstest.Handled, 3))
			}
			if _, err := c.Step(eventstest.CrashAt(t.Context(), point, 1)); !errors.Is(err, eventstest.Crashed) {
				t.Fatal(err)
			}
			for range 3 {
				eventstest.Drain(t, pool, queue, c)
				eventstest.RetryNow(t, pool, queue)
			}
			got := value[string](t, app, "select string_agg(n::text, ' ' order by n) from effect")
			if want := "0 1 2 3 4 5 6 7 8 9 100"; got != want {
				t.Errorf("effects %q, want %q", got, want)
			}
		})
	}
}

func TestInbox(t *testing.T) {
	_, pool := setUp(t, newest(t))
	number := events.Define[int]("t")
	if _, err := events.Send(t.Context(), pool, queue, number.New(1)); err != nil {
		t.Fatal(err)
	}
	var seen error
	c := events.NewConsumer(pool, queue, consumer, events.ConsumerConfig{Observer: func(o events.Observation) {
		if h, ok := o.(events.Handled); ok {
			seen = h.Err
		}
	}})
	events.HandleTx(c, pool, number, func(context.Context, pgx.Tx, *events.Event, int) error { return nil })
	eventstest.Drain(t, pool, queue, c)
	if seen == nil || !strings.Contains(seen.Error(), "events.InboxDDL") {
		t.Errorf("without the table: %v", seen)
	}
	if _, err := events.PurgeInbox(t.Context(), pool, time.Hour); err == nil || !strings.Contains(err.Error(), "events.InboxDDL") || errors.Is(err, events.ErrNotInstalled) {
		t.Errorf("purge without the table: %v", err)
	}
	if _, err := pool.Exec(t.Context(), events.InboxDDL+events.InboxDDL+`insert into pgque_inbox
		select 'q', 'c', 'old' || i, now() - interval '2 days' from generate_series(1, 2500) i; insert into pgque_inbox values ('q', 'c', 'new')`); err != nil {
		t.Fatal(err)
	}
	if n, err := events.PurgeInbox(t.Context(), pool, 24*time.Hour); n != 2500 || err != nil {
		t.Errorf("purged %d, %v; want 2500", n, err)
	}
	if _, err := events.PurgeInbox(t.Context(), pool, 0); !errors.Is(err, events.ErrInvalid) {
		t.Errorf("purge everything: %v", err)
	}
}

// What the inbox takes for one event is one: not two that were sent for one cause,
// of two types, and not what a queue that was made anew gives the same ids to.
func TestInboxTellsEventsApart(t *testing.T) {
	_, pool := setUp(t, newest(t))
	if _, err := pool.Exec(t.Context(), events.InboxDDL); err != nil {
		t.Fatal(err)
	}
	opened, closed := events.Define[int]("opened"), events.Define[int]("closed")
	var got []string
	c := events.NewConsumer(pool, queue, consumer, events.ConsumerConfig{})
	for _, kind := range []events.Type[int]{opened, closed} {
		events.HandleTx(c, pool, kind, func(_ context.Context, _ pgx.Tx, e *events.Event, n int) error {
			got = append(got, fmt.Sprint(e.Type, n))
			return nil
		})
	}
	long := strings.Repeat("k", 100_000)
	send := func() {
		for _, e := range []events.Event{
			opened.New(1), opened.New(2),
			opened.New(3).WithHeader(events.IdempotencyKey, "job 1"), closed.New(4).WithHeader(events.IdempotencyKey, "job 1"),
			closed.New(5).WithHeader(events.IdempotencyKey, long), closed.New(6).WithHeader(events.IdempotencyKey, long), // once
		} {
			if _, err := events.Send(t.Context(), pool, queue, e); err != nil {
				t.Fatal(err)
			}
		}
		eventstest.Drain(t, pool, queue, c)
	}
	send()
	if want := "opened1 opened2 opened3 closed4 closed5"; strings.Join(got, " ") != want {
		t.Errorf("done: %q, want %q", got, want)
	}
	if err := events.DropQueue(t.Context(), pool, queue, true); err != nil {
		t.Fatal(err)
	}
	if _, err := events.EnsureQueue(t.Context(), pool, queue, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := events.Subscribe(t.Context(), pool, queue, consumer); err != nil {
		t.Fatal(err)
	}
	got = nil
	send()
	if want := "opened1 opened2"; strings.Join(got, " ") != want {
		t.Errorf("in the queue that was made anew: %q, want %q", got, want)
	}
}
