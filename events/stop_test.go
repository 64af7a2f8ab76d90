package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// block holds a lock that acks, and opening a batch, wait for.
func block(t *testing.T, db *pgtest.DB) {
	t.Helper()
	tx, err := db.Connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), "select from pgque.subscription for update"); err != nil {
		t.Fatal(err)
	}
}

const blocked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"

// A second signal ends at once, also when the grace is over and settling waits for
// a lock; the call of the database would go on for half a minute.
func TestAbortWhileSettling(t *testing.T) {
	for name, stopped := range map[string]bool{"at work": false, "after the grace": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, pool := setUp(t, newest(t))
			publish(t, pool, 1)
			eventstest.Tick(t, pool, queue)
			in, goOn := make(chan struct{}), make(chan struct{})
			r := start(t, pool, events.ConsumerConfig{Grace: time.Millisecond}, func(context.Context, *events.Event) error {
				close(in)
				<-goOn
				return nil
			})
			<-in
			block(t, db)
			if stopped {
				r.stop()
			}
			close(goOn)
			until(t, "settling", func() bool { return value[int](t, pool, blocked) > 0 })
			began := time.Now()
			r.c.Abort()
			if err := r.wait(); !errors.Is(err, events.ErrAborted) {
				t.Errorf("Run = %v, want ErrAborted", err)
			}
			if d := time.Since(began); d > 12*time.Second {
				t.Errorf("it ended %s after Abort", d)
			}
		})
	}
}

// What the grace bounds is not the handlers alone: opening a batch waits for a lock.
func TestStopWhileOpening(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	r := start(t, pool, events.ConsumerConfig{Grace: 100 * time.Millisecond, Poll: 50 * time.Millisecond}, func(context.Context, *events.Event) error { return nil })
	until(t, "start", r.active)
	block(t, db)
	publish(t, pool, 1)
	eventstest.Tick(t, pool, queue)
	until(t, "opening", func() bool { return value[int](t, pool, blocked) > 0 })
	began := time.Now()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d > 12*time.Second {
		t.Errorf("it ended %s after it was stopped", d)
	}
}

// With keys a deploy keeps the order: an event that was handed back would come later
// than those of the next batch.
func TestOrderAtDeploy(t *testing.T) {
	_, pool := setUp(t, newest(t))
	publish(t, pool, 3)
	eventstest.Tick(t, pool, queue)
	var got tally
	cfg := events.ConsumerConfig{Key: func(*events.Event) string { return "one" }, Grace: 4 * time.Minute}
	in, goOn := make(chan struct{}, 9), make(chan struct{})
	first := start(t, pool, cfg, func(_ context.Context, e *events.Event) error {
		got.add(e)
		in <- struct{}{}
		<-goOn
		return nil
	})
	<-in
	if _, err := events.Send(t.Context(), pool, queue, events.Event{Type: "t", Payload: []byte("4")}); err != nil {
		t.Fatal(err)
	}
	eventstest.Tick(t, pool, queue)
	first.stop()
	close(goOn)
	if err := first.wait(); err != nil {
		t.Fatal(err)
	}
	second := start(t, pool, cfg, func(_ context.Context, e *events.Event) error { got.add(e); return nil })
	runTicker(t, pool)
	until(t, "all four", func() bool { n, _ := got.count(); return n == 4 })
	if err := second.end(); err != nil {
		t.Error(err)
	}
	if want := []string{"1", "2", "3", "4"}; !slices.Equal(got.order(), want) {
		t.Errorf("handled %v, want %v", got.order(), want)
	}
}

// With keys, too, what half of the grace is not enough for goes back.
func TestKeysHandBackAfterHalfTheGrace(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	publish(t, pool, 3)
	eventstest.Tick(t, pool, queue)
	cfg := events.ConsumerConfig{Key: func(*events.Event) string { return "one" }, Grace: 20 * time.Second}
	in := make(chan struct{}, 9)
	r := start(t, pool, cfg, func(ctx context.Context, _ *events.Event) error {
		in <- struct{}{}
		select {
		case <-ctx.Done():
		case <-time.After(11 * time.Second):
		}
		return nil
	})
	<-in
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if n := value[int](t, pool, "select count(*) from pgque.retry_queue where ev_retry is null and ev_retry_after <= now()"); n != 2 {
		t.Errorf("%d events went back, want 2", n)
	}
}

// A batch that stays open at the end is said: its finished events come again.
func TestOpenBatchAtTheEndIsSaid(t *testing.T) {
	db, pool := setUp(t, newest(t))
	login := db.Role(t)
	db.Exec(t, fmt.Sprintf("grant pgque_reader to %s", pgx.Identifier{login}.Sanitize()))
	db.Exec(t, "update pgque.queue set queue_max_retries = 0")
	publish(t, pool, 3)
	eventstest.Tick(t, pool, queue)
	in, goOn := make(chan struct{}, 9), make(chan struct{})
	r := start(t, db.PoolAs(t, login), events.ConsumerConfig{}, func(context.Context, *events.Event) error {
		in <- struct{}{}
		<-goOn
		return nil
	})
	<-in
	r.stop()
	close(goOn)
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if n := value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is not null"); n != 1 {
		t.Fatalf("%d batches are open, want 1", n)
	}
	if r.log.count("it comes again") != 1 {
		t.Error("it was not said")
	}
}

// Who unsubscribes a consumer that runs gets it back, and is told what that cost.
func TestUnsubscribedWhileRunning(t *testing.T) {
	_, pool := setUp(t, newest(t))
	r := start(t, pool, events.ConsumerConfig{Poll: 20 * time.Millisecond}, func(context.Context, *events.Event) error { return nil })
	until(t, "start", r.active)
	before := pool.Stat().NewConnsCount()
	if _, err := events.Unsubscribe(t.Context(), pool, queue, consumer); err != nil {
		t.Fatal(err)
	}
	until(t, "a word about it", func() bool { return r.log.count("not delivered") == 1 })
	if n := value[int](t, pool, "select count(*) from pgque.subscription"); n != 1 {
		t.Errorf("%d subscriptions", n)
	}
	if after := pool.Stat().NewConnsCount(); after > before+2 { // the lease's and the listener's own
		t.Errorf("the pool made %d connections anew for an answer of the server", after-before)
	}
}

// A lease that is lost is told apart from other errors, by the handler and by the
// caller of Step.
func TestStepLosesTheLease(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	publish(t, pool, 1)
	eventstest.Tick(t, pool, queue)
	c := events.NewConsumer(pool, queue, consumer, events.ConsumerConfig{})
	var cause error
	c.HandleAny(func(ctx context.Context, _ *events.Event) error {
		value[int](t, pool, `select count(pg_terminate_backend(pid)) from (select distinct pid from pg_locks where locktype = 'advisory' and granted and objsubid = 1
			and database = (select oid from pg_database where datname = current_database())) holders`)
		<-ctx.Done()
		cause = context.Cause(ctx)
		return nil
	})
	if _, err := c.Step(t.Context()); !errors.Is(err, events.ErrLeaseLost) {
		t.Errorf("Step = %v, want ErrLeaseLost", err)
	}
	if !errors.Is(cause, events.ErrLeaseLost) {
		t.Errorf("the handler's context ended for %v, want ErrLeaseLost", cause)
	}
	if n := value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is not null"); n != 1 {
		t.Errorf("%d open batches, want the one that was not settled", n)
	}
}
