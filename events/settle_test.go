package events_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// A handler that could not begin costs its event nothing, under the crash guard
// neither, and later events of the key do not overtake it.
func TestHandBack(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		_, pool := setUp(t, v)
		for _, guarded := range []bool{false, true} {
			publish(t, pool, 5)
			eventstest.Tick(t, pool, queue)
			var seen []events.Handled
			c := handler(pool, events.ConsumerConfig{
				Key: func(e *events.Event) string { return string('a' + e.Payload[0]%2) },
				Observer: func(o events.Observation) {
					if h, ok := o.(events.Handled); ok {
						seen = append(seen, h)
					}
				},
			}, func(_ context.Context, e *events.Event) error {
				if string(e.Payload) == "2" && len(seen) < 2 {
					return events.HandBack(errors.New("no program"))
				}
				return nil
			})
			if guarded {
				if _, err := c.Step(eventstest.CrashAt(t.Context(), eventstest.Received, 1)); !errors.Is(err, eventstest.Crashed) {
					t.Fatal(err)
				}
			}
			eventstest.Step(t, c)
			if seen[1].Outcome != events.OutcomeHandedBack || seen[1].Err == nil {
				t.Errorf("guarded=%v: observed %+v", guarded, seen[1])
			}
			got := value[string](t, pool, "select string_agg(ev_data || ' ' || coalesce(ev_retry, 0) || ' ' || (ev_retry_after <= now()), ', ' order by ev_id) from pgque.retry_queue")
			if want := "2 0 true, 4 0 true"; got != want {
				t.Errorf("guarded=%v: went back %q, want %q", guarded, got, want)
			}
			eventstest.RetryNow(t, pool, queue)
			eventstest.Drain(t, pool, queue, c)
		}
	})
}

// Without pgque_admin handing back costs an attempt. The last one is not spent on
// an event that never ran, or that we stopped: the batch stays open.
func TestHandBackAsReader(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	login := db.Role(t)
	db.Exec(t, fmt.Sprintf("grant pgque_reader to %q", login))
	db.Exec(t, "select pgque.set_queue_config('q', 'max_retries', '0')")
	publish(t, pool, 1)
	eventstest.Tick(t, pool, queue)
	c := handler(db.PoolAs(t, login), events.ConsumerConfig{}, func(context.Context, *events.Event) error { return events.HandBack(nil) })
	if _, err := c.Step(t.Context()); err == nil {
		t.Error("Step = nil, want that it could not hand back")
	}
	in := make(chan struct{}, 1)
	r := start(t, db.PoolAs(t, login), events.ConsumerConfig{Grace: 20 * time.Millisecond}, func(ctx context.Context, _ *events.Event) error {
		in <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	<-in
	if err := r.end(); !errors.Is(err, events.ErrGraceExceeded) {
		t.Errorf("Run = %v", err)
	}
	if n := value[int](t, pool, dead); n != 0 {
		t.Error("an event that was handed back is a dead letter")
	}
}

// A handler that panics, or ends its goroutine, in the middle of its transaction
// leaves neither the transaction nor its connection behind.
func TestHandleTxPanics(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	small := newPool(t, db.URL, func(c *pgxpool.Config) { c.MaxConns = 1 })
	db.Exec(t, events.InboxDDL+"create table effect (n int)")
	number := events.Define[int]("t")
	publish(t, pool, 3)
	c := events.NewConsumer(pool, queue, consumer, events.ConsumerConfig{HandlerTimeout: 5 * time.Second})
	events.HandleTx(c, small, number, func(ctx context.Context, tx pgx.Tx, e *events.Event, n int) error {
		if _, err := tx.Exec(ctx, "insert into effect values ($1)", n); err != nil {
			return err
		}
		if e.Attempt == 1 && n < 3 {
			panic("in the middle")
		}
		return nil
	})
	eventstest.Drain(t, pool, queue, c)
	if n := small.Stat().AcquiredConns(); n != 0 {
		t.Fatalf("%d connections were not given back", n)
	}
	eventstest.RetryNow(t, pool, queue)
	eventstest.Drain(t, pool, queue, c)
	if got := value[string](t, pool, "select string_agg(n::text, ' ' order by n) from effect"); got != "1 2 3" {
		t.Errorf("effects %q", got)
	}
}

// receive acks an empty batch by itself; that is no stale ack.
func TestEmptyBatchAsReader(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		db, pool := setUp(t, v)
		login := db.Role(t)
		db.Exec(t, fmt.Sprintf("grant pgque_reader to %q", login))
		for range 3 {
			eventstest.Tick(t, pool, queue)
		}
		publish(t, pool, 1)
		eventstest.Tick(t, pool, queue)
		c := handler(db.PoolAs(t, login), events.ConsumerConfig{Observer: func(o events.Observation) {
			if s, ok := o.(events.Settled); ok && s.Stale {
				t.Errorf("observed %+v", s)
			}
		}}, func(context.Context, *events.Event) error { return nil })
		if n := eventstest.Step(t, c); n != 1 {
			t.Errorf("handled %d events, want 1", n)
		}
	})
}

// failAcks makes every ack fail until the function that it returns is called.
func failAcks(t *testing.T, db *pgtest.DB) (mend func()) {
	db.Exec(t, `create function fail() returns trigger language plpgsql as $$ begin raise exception 'no ack today'; end $$;
		create trigger fail before update of sub_batch on pgque.subscription for each row when (new.sub_batch is null) execute function fail()`)
	return func() { db.Exec(t, "drop trigger fail on pgque.subscription") }
}

// A settling that fails and fails does not keep the process from stopping.
func TestStopWhileSettlingFails(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	failAcks(t, db)
	publish(t, pool, 1)
	eventstest.Tick(t, pool, queue)
	r := start(t, pool, events.ConsumerConfig{Grace: 100 * time.Millisecond}, func(context.Context, *events.Event) error { return nil })
	until(t, "two tries", func() bool { return r.log.count("settling failed") >= 2 })
	if err := r.end(); !errors.Is(err, events.ErrGraceExceeded) {
		t.Errorf("Run = %v, want ErrGraceExceeded", err)
	}
}

// The answer to the ack's commit is lost: it was done, and is not called stale.
func TestUnansweredAck(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]bool{"all done": false, "with a failure": true} {
		t.Run(name, func(t *testing.T) {
			db, pool := setUp(t, newest(t))
			var net lossy
			publish(t, pool, 2)
			eventstest.Tick(t, pool, queue)
			var settled atomic.Pointer[events.Settled]
			var runs atomic.Int32
			r := start(t, net.pool(t, db.URL), events.ConsumerConfig{Observer: func(o events.Observation) {
				if s, ok := o.(events.Settled); ok && s.Events > 0 {
					settled.Store(&s)
				}
			}}, func(context.Context, *events.Event) error {
				if runs.Add(1) == 2 {
					net.onceAfter("pgque.ack(", "commit") // in the same trip or the next
					if fail {
						return errors.New("no")
					}
				}
				return nil
			})
			until(t, "settling", func() bool { return settled.Load() != nil })
			if s := settled.Load(); s.Stale || fail && s.Retried != 1 || s.Events != 2 {
				t.Errorf("observed %+v", s)
			}
			if r.log.count("settling failed") != 1 || r.log.count("stale") != 0 || runs.Load() != 2 {
				t.Errorf("%d runs; log:\n%s", runs.Load(), r.log)
			}
		})
	}
}

// B020: whatever fails in a batch that runs under the crash guard, it stays under
// the guard, and a booking whose answer was lost is taken back.
func TestGuardSurvivesErrors(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	var net lossy
	publish(t, pool, 5)
	eventstest.Tick(t, pool, queue)
	var got tally
	h := func(_ context.Context, e *events.Event) error {
		if got.add(e) == 1 && string(e.Payload) == "2" {
			net.onceAfter("event_retry_raw", "commit")
		}
		return nil
	}
	lossyPool := net.pool(t, db.URL)
	if _, err := handler(lossyPool, events.ConsumerConfig{}, h).Step(eventstest.CrashAt(t.Context(), eventstest.Received, 1)); !errors.Is(err, eventstest.Crashed) {
		t.Fatal(err)
	}
	r := start(t, lossyPool, events.ConsumerConfig{}, h)
	until(t, "settling", func() bool {
		return value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is not null") == 0
	})
	if distinct, total := got.count(); distinct != 5 || total != 7 {
		t.Errorf("handled %d events %d times, want 5 and 7: %v", distinct, total, got.order())
	}
	if n := r.log.count("one at a time"); n != 2 {
		t.Errorf("%d times under the guard, want 2", n)
	}
	if n := value[int](t, pool, retries) + value[int](t, pool, dead); n != 0 {
		t.Errorf("%d bookings are left", n)
	}
}

// The same for an error that costs neither the connection nor the lease.
func TestGuardSurvivesDeadlock(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	publish(t, pool, 3)
	eventstest.Tick(t, pool, queue)
	h := func(context.Context, *events.Event) error { return nil }
	if _, err := handler(pool, events.ConsumerConfig{}, h).Step(eventstest.CrashAt(t.Context(), eventstest.Received, 1)); !errors.Is(err, eventstest.Crashed) {
		t.Fatal(err)
	}
	db.Exec(t, `create sequence tries; create function fail() returns trigger language plpgsql as $$ begin
		if nextval('public.tries') = 2 then raise 'deadlock' using errcode = '40P01'; end if; return new; end $$;
		create trigger fail before insert on pgque.retry_queue for each row execute function fail()`)
	r := start(t, pool, events.ConsumerConfig{}, h)
	until(t, "settling", func() bool {
		return value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is not null") == 0
	})
	// Two tries, of which the second booked all three.
	if n := value[int](t, pool, "select last_value from tries"); n != 5 || r.log.count("one at a time") != 2 {
		t.Errorf("%d bookings were tried; log:\n%s", n, r.log)
	}
	if n := value[int](t, pool, retries); n != 0 {
		t.Errorf("%d bookings are left", n)
	}
}

// A process that lost its lease in the middle of a batch gets it back after
// another one has died of an event: it does not run that event again.
func TestWreckOfAnotherInOwnBatch(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	publish(t, pool, 3)
	eventstest.Tick(t, pool, queue)
	in, goOn := make(chan struct{}, 1), make(chan struct{})
	var got tally
	r := start(t, pool, events.ConsumerConfig{}, func(ctx context.Context, e *events.Event) error {
		if got.add(e) == 1 && string(e.Payload) == "1" {
			in <- struct{}{}
			<-goOn
			<-ctx.Done()
		}
		return nil
	})
	<-in
	loseLease(pool)
	other := handler(pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return nil })
	until(t, "a crash of the other", func() bool {
		_, err := other.Step(eventstest.CrashAt(context.Background(), eventstest.Handled, 2))
		return errors.Is(err, eventstest.Crashed)
	})
	close(goOn)
	until(t, "settling", func() bool {
		return value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is not null") == 0
	})
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(got.order()); got != "[1 1 3]" {
		t.Errorf("handled %s, want [1 1 3]", got)
	}
	if got := value[string](t, pool, "select string_agg(ev_data || ' ' || ev_retry, ', ') from pgque.retry_queue"); got != "2 1" {
		t.Errorf("bookings %q, want that of 2", got)
	}
}

// loseLease ends the server's side of every lease in the database.
func loseLease(pool *pgxpool.Pool) {
	_, _ = pool.Exec(context.Background(), `select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted and objsubid = 1
		and database = (select oid from pg_database where datname = current_database())`)
}

// A Backoff that panics does not take the process along.
func TestBackoffPanics(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	publish(t, pool, 1)
	c := handler(pool, events.ConsumerConfig{Backoff: func(int) time.Duration { panic("no pause") }}, func(context.Context, *events.Event) error {
		return errors.New("no")
	})
	eventstest.Drain(t, pool, queue, c)
	if n := value[int](t, pool, retries); n != 1 {
		t.Errorf("%d retries, want 1", n)
	}
}
