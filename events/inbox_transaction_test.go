package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
)

// A transaction of the caller's would be rolled back after its events were acked,
// and a connection is one worker's and lost once.
func TestHandleTxNeedsAPool(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	if _, err := pool.Exec(t.Context(), events.InboxDDL); err != nil {
		t.Fatal(err)
	}
	publish(t, pool, 1)
	eventstest.Tick(t, pool, queue)
	acquired, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer acquired.Release()
	tx, err := acquired.Conn().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	wrapped := struct{ *pgxpool.Pool }{pool}
	handled := 0
	for name, c := range map[string]struct {
		db      events.DB
		refused bool
	}{
		"nothing": {nil, true}, "transaction": {tx, true}, "wrapped transaction": {struct{ pgx.Tx }{tx}, true},
		"connection": {acquired.Conn(), true}, "connection of a pool": {acquired, true},
		"wrapped pool": {wrapped, false}, "interface": {struct{ events.DB }{pool}, false},
	} {
		consumer := events.NewConsumer(pool, queue, consumer, events.ConsumerConfig{})
		events.HandleTx(consumer, c.db, events.Define[int]("t"), func(context.Context, pgx.Tx, *events.Event, int) error { handled++; return nil })
		_, err := consumer.Step(t.Context())
		if errors.Is(err, events.ErrInvalid) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	if handled != 1 {
		t.Errorf("the event was handled %d times", handled)
	}
}

// When the handler ends the transaction, effect and note are not one any more, and
// the event is not done by that.
func TestHandlerEndsTheTransaction(t *testing.T) {
	for name, end := range map[string]func(context.Context, pgx.Tx) error{
		"commit":       func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"rollback":     func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		"sql commit":   func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "commit"); return err },
		"sql rollback": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "rollback"); return err },
		"by its connection": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, "rollback")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, pool := setUp(t, newest(t))
			if _, err := pool.Exec(t.Context(), events.InboxDDL+"create table effect (n int)"); err != nil {
				t.Fatal(err)
			}
			var first events.Handled
			c := events.NewConsumer(pool, queue, consumer, events.ConsumerConfig{Observer: func(o events.Observation) {
				if h, ok := o.(events.Handled); ok && first.ID == 0 {
					first = h
				}
			}})
			events.HandleTx(c, pool, events.Define[int]("t"), func(ctx context.Context, tx pgx.Tx, e *events.Event, n int) error {
				if _, err := tx.Exec(ctx, "insert into effect values ($1)", n); err != nil {
					return err
				}
				if e.Attempt > 1 {
					return nil
				}
				return end(ctx, tx)
			})
			publish(t, pool, 1)
			eventstest.Drain(t, pool, queue, c)
			if first.Outcome != events.OutcomeRetried || !strings.Contains(fmt.Sprint(first.Err), "HandleTx itself") {
				t.Errorf("%s: %v", first.Outcome, first.Err)
			}
			eventstest.RetryNow(t, pool, queue)
			eventstest.Drain(t, pool, queue, c)
			if n := value[int](t, pool, "select count(*) from effect"); n != 1 {
				t.Errorf("%d effects, want 1", n)
			}
			if n := value[int](t, pool, "select count(*) from pgque_inbox"); n != 1 {
				t.Errorf("%d notes, want 1", n)
			}
		})
	}
}

// The transaction is the handler's: isolation and lock_timeout are what the database
// has. It may be idle for as long as the handler may run, or less.
func TestHandleTxSettings(t *testing.T) {
	const show = `select concat_ws(' ', current_setting('transaction_isolation'), current_setting('transaction_read_only'), current_setting('lock_timeout'),
		current_setting('idle_in_transaction_session_timeout')::interval between '1 min' and '5 min', current_setting('idle_in_transaction_session_timeout'))`
	for set, want := range map[string]string{
		"": "read committed off 0 t ",
		"default_transaction_isolation = 'serializable'":  "serializable off 0 t ",
		"default_transaction_read_only = on":              "read committed off 0 t ",
		"lock_timeout = '1234ms'":                         "read committed off 1234ms t ",
		"idle_in_transaction_session_timeout = '1234567'": "read committed off 0 t ",
		"idle_in_transaction_session_timeout = '59s'":     "read committed off 0 f 59s",
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			_, pool := setUp(t, newest(t))
			app := inboxDatabase(t, set)
			c := events.NewConsumer(pool, queue, consumer, events.ConsumerConfig{})
			got := ""
			events.HandleTx(c, app.Pool(t), events.Define[int]("t"), func(ctx context.Context, tx pgx.Tx, _ *events.Event, _ int) error {
				return tx.QueryRow(ctx, show).Scan(&got)
			})
			publish(t, pool, 1)
			eventstest.Drain(t, pool, queue, c)
			if !strings.HasPrefix(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			if left := value[string](t, app.Pool(t), "select current_setting('lock_timeout')"); !strings.Contains(want, " "+left+" ") {
				t.Errorf("lock_timeout is %s afterwards", left)
			}
		})
	}
}

// A holder whose handler does not return, as if its process were frozen, loses its
// transaction when its time is over.
func TestFrozenHolderLosesItsTransaction(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	db.Exec(t, events.InboxDDL+"create table effect (n int)")
	entered, frozen := make(chan struct{}, 10), make(chan struct{})
	c := events.NewConsumer(pool, queue, consumer, events.ConsumerConfig{HandlerTimeout: 15 * time.Second})
	events.HandleTx(c, pool, events.Define[int]("t"), func(ctx context.Context, tx pgx.Tx, _ *events.Event, n int) error {
		_, err := tx.Exec(ctx, "insert into effect values ($1)", n)
		entered <- struct{}{}
		<-frozen
		return err
	})
	publish(t, pool, 1)
	eventstest.Tick(t, pool, queue)
	stepped := make(chan error, 1)
	go func() {
		_, err := c.Step(context.Background())
		stepped <- err
	}()
	until(t, "handler", func() bool { return len(entered) > 0 })
	until(t, "the end of its transaction", func() bool {
		return value[int](t, pool, "select count(*) from pg_locks l join pg_class c on c.oid = l.relation where c.relname = 'effect' and l.database = (select oid from pg_database where datname = current_database())") == 0
	})
	close(frozen)
	if err := <-stepped; err != nil {
		t.Fatal(err)
	}
	eventstest.RetryNow(t, pool, queue)
	eventstest.Drain(t, pool, queue, c)
	if n := value[int](t, pool, "select count(*) from effect"); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}
