package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

const queue, consumer = "q", "c"

// setUp is a database with PgQue and the queue, to which the consumer is subscribed.
func setUp(t testing.TB, v pgtest.Variant) (*pgtest.DB, *pgxpool.Pool) {
	t.Helper()
	db := pgtest.Database(t)
	db.Install(t, v)
	pool := db.Pool(t)
	if _, err := events.EnsureQueue(t.Context(), pool, queue, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := events.Subscribe(t.Context(), pool, queue, consumer); err != nil {
		t.Fatal(err)
	}
	return db, pool
}

// publish sends n events of type t whose payload is their number, from 1.
func publish(t testing.TB, db events.DB, n int) []int64 {
	t.Helper()
	es := make([]events.Event, n)
	for i := range es {
		es[i] = events.Event{Type: "t", Payload: json.RawMessage(fmt.Sprint(i + 1))}
	}
	ids, err := events.SendBatch(t.Context(), db, queue, es)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// tally counts what a handler saw, by payload.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
	list []string
}

func (l *tally) add(e *events.Event) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[string]int{}
	}
	l.seen[string(e.Payload)]++
	l.list = append(l.list, string(e.Payload))
	return l.seen[string(e.Payload)]
}

func (l *tally) order() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

func (l *tally) count() (distinct, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen), len(l.list)
}

func handler(pool *pgxpool.Pool, cfg events.ConsumerConfig, h events.Handler) *events.Consumer {
	c := events.NewConsumer(pool, queue, consumer, cfg)
	c.HandleAny(h)
	return c
}

func value[T any](t testing.TB, db events.DB, sql string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

const (
	retries = "select count(*) from pgque.retry_queue"
	dead    = "select count(*) from pgque.dead_letter"
)

// B017: an ack finishes the whole batch, so the whole batch is handled.
func TestWholeBatch(t *testing.T) {
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		_, pool := setUp(t, v)
		for _, workers := range []int{1, 4} {
			publish(t, pool, 5001)
			var got tally
			c := handler(pool, events.ConsumerConfig{Workers: workers}, func(_ context.Context, e *events.Event) error { got.add(e); return nil })
			if n := eventstest.Drain(t, pool, queue, c); n != 5001 {
				t.Errorf("%d workers: %d events were read, want 5001", workers, n)
			}
			if distinct, total := got.count(); distinct != 5001 || total != 5001 {
				t.Errorf("%d workers: handled %d events %d times, want 5001 once", workers, distinct, total)
			}
		}
	})
}

func TestOutcomes(t *testing.T) {
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		_, pool := setUp(t, v)
		publish(t, pool, 9)
		c := handler(pool, events.ConsumerConfig{Workers: 3}, func(_ context.Context, e *events.Event) error {
			switch string(e.Payload) {
			case "2":
				return errors.New("a\x00b\xff" + strings.Repeat("ä", 5000))
			case "3":
				return events.RetryAfter(time.Hour, errors.New("later"))
			case "4":
				return events.Dead(errors.New("no\x00such \xffuser"))
			case "5":
				return events.Skip
			case "6":
				panic("boom")
			case "7":
				runtime.Goexit()
			case "8":
				var err *nilError
				return err
			}
			return nil
		})
		if n := eventstest.Drain(t, pool, queue, c); n != 9 {
			t.Fatalf("read %d events, want 9", n)
		}
		got := value[string](t, pool, "select string_agg(ev_data || ':' || ev_retry, ' ' order by ev_id) from pgque.retry_queue")
		if want := "2:1 3:1 6:1 7:1 8:1"; got != want {
			t.Errorf("retry queue %q, want %q", got, want)
		}
		if d := value[float64](t, pool, "select extract(epoch from ev_retry_after - now())::float8 from pgque.retry_queue where ev_data = '3'"); d < 3300 || d > 3600 {
			t.Errorf("RetryAfter(1h) is due in %.0f s", d)
		}
		if d := value[float64](t, pool, "select extract(epoch from ev_retry_after - now())::float8 from pgque.retry_queue where ev_data = '2'"); d > 2 {
			t.Errorf("the first retry is due in %.1f s, want about 1", d)
		}
		if reason := value[string](t, pool, "select dl_reason from pgque.dead_letter where ev_data = '4'"); reason != "no\uFFFDsuch \uFFFDuser" {
			t.Errorf("reason %q", reason)
		}
	})
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestRetriesEndAsDeadLetter(t *testing.T) {
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		_, pool := setUp(t, v)
		publish(t, pool, 1)
		var attempts []int
		c := handler(pool, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error {
			attempts = append(attempts, e.Attempt)
			return fmt.Errorf("attempt %d", e.Attempt)
		})
		eventstest.Drain(t, pool, queue, c)
		for range 8 {
			eventstest.RetryNow(t, pool, queue)
			eventstest.Drain(t, pool, queue, c)
		}
		if want := []int{1, 2, 3, 4, 5, 6}; !slices.Equal(attempts, want) {
			t.Errorf("attempts %v, want %v", attempts, want)
		}
		if reason := value[string](t, pool, "select dl_reason from pgque.dead_letter"); reason != "attempt 6" {
			t.Errorf("reason %q", reason)
		}
	})
}

// B021: NULL type, NULL payload, a payload that is no JSON.
func TestOddRows(t *testing.T) {
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		_, pool := setUp(t, v)
		number := events.Define[int]("t")
		if _, err := events.Send(t.Context(), pool, queue, number.New(1)); err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{
			"select pgque.insert_event('q', null, null)", "select pgque.insert_event('q', 't', null)",
			"select pgque.insert_event('q', 't', 'no json')", "select pgque.insert_event('q', 'unknown', '3')",
			"select pgque.insert_event('q', 't', '2', 'x1', 'x2', 'no json', 'x4')",
		} {
			if _, err := pool.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		var sum int
		c := events.NewConsumer(pool, queue, consumer, events.ConsumerConfig{})
		events.Handle(c, number, func(_ context.Context, e *events.Event, n int) error { sum += n; return nil })
		eventstest.Drain(t, pool, queue, c)
		if sum != 3 {
			t.Errorf("good events add up to %d, want 3", sum)
		}
		if n := value[int](t, pool, retries); n != 4 {
			t.Errorf("%d are retried, want the 4 bad ones", n)
		}
		// Nothing of a row is changed by a retry.
		if n := value[int](t, pool, "select count(*) from pgque.retry_queue where ev_type is null and ev_data is null"); n != 1 {
			t.Errorf("%d retry rows have NULL type and payload, want 1", n)
		}
	})
}

func TestUnhandledPolicies(t *testing.T) {
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		_, pool := setUp(t, v)
		for policy, want := range map[events.UnhandledPolicy][2]int{
			events.UnhandledRetry: {1, 0}, events.UnhandledDead: {0, 1}, events.UnhandledSkip: {0, 0},
		} {
			if _, err := pool.Exec(t.Context(), "delete from pgque.retry_queue; delete from pgque.dead_letter"); err != nil {
				t.Fatal(err)
			}
			publish(t, pool, 1)
			c := events.NewConsumer(pool, queue, consumer, events.ConsumerConfig{Unhandled: policy})
			c.Handle("other", func(context.Context, *events.Event) error { return nil })
			eventstest.Drain(t, pool, queue, c)
			if got := [2]int{value[int](t, pool, retries), value[int](t, pool, dead)}; got != want {
				t.Errorf("policy %d: retries and dead letters %v, want %v", policy, got, want)
			}
		}
	})
}

func TestKeyOrder(t *testing.T) {
	_, pool := setUp(t, pgtest.Variants(t)[len(pgtest.Variants(t))-1])
	publish(t, pool, 600)
	key := func(e *events.Event) string {
		var n int
		_ = json.Unmarshal(e.Payload, &n)
		return fmt.Sprint(n % 7)
	}
	var got tally
	failed := false
	var mu sync.Mutex
	c := handler(pool, events.ConsumerConfig{Workers: 4, Key: key, OnFailure: events.HoldKey}, func(_ context.Context, e *events.Event) error {
		if string(e.Payload) == "303" { // key 2
			mu.Lock()
			defer mu.Unlock()
			failed = true
			return errors.New("no")
		}
		got.add(e)
		return nil
	})
	eventstest.Drain(t, pool, queue, c)
	last := map[string]int{}
	for _, p := range got.order() {
		var n int
		_ = json.Unmarshal([]byte(p), &n)
		k := fmt.Sprint(n % 7)
		if n < last[k] {
			t.Fatalf("key %s: %d came after %d", k, n, last[k])
		}
		last[k] = n
	}
	if !failed || last["2"] >= 303 {
		t.Errorf("the last event of the held key is %d, want one before 303", last["2"])
	}
	// 303, 310, … 597 wait; only the failed one has spent an attempt.
	if n := value[int](t, pool, retries); n != 43 {
		t.Errorf("%d retry rows, want 43", n)
	}
	if n := value[int](t, pool, "select count(*) from pgque.retry_queue where ev_retry is not null"); n != 1 {
		t.Errorf("%d events have spent an attempt, want 1", n)
	}
}

func TestHandlerLimitAndMiddleware(t *testing.T) {
	_, pool := setUp(t, pgtest.Variants(t)[0])
	publish(t, pool, 1)
	var order []string
	layer := func(name string) func(events.Handler) events.Handler {
		return func(next events.Handler) events.Handler {
			return func(ctx context.Context, e *events.Event) error {
				order = append(order, name)
				return next(ctx, e)
			}
		}
	}
	var seen events.Handled
	c := events.NewConsumer(pool, queue, consumer, events.ConsumerConfig{HandlerTimeout: 20 * time.Millisecond, Observer: func(o events.Observation) {
		if h, ok := o.(events.Handled); ok {
			seen = h
		}
	}})
	c.Use(layer("outer"), layer("inner"))
	c.HandleAny(func(ctx context.Context, e *events.Event) error { <-ctx.Done(); return ctx.Err() })
	eventstest.Drain(t, pool, queue, c)
	if want := []string{"outer", "inner"}; !slices.Equal(order, want) {
		t.Errorf("middleware ran %v, want %v", order, want)
	}
	if seen.Outcome != events.OutcomeRetried || seen.Err == nil || !strings.Contains(seen.Err.Error(), "did not return within 20ms") {
		t.Errorf("observed %+v", seen)
	}
}
