package events_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// A crash at every point between receive and commit loses nothing, dead-letters
// nothing and leaves no booking behind.
func TestCrashAtEveryPoint(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		for _, point := range eventstest.Points {
			t.Run(string(point), func(t *testing.T) {
				_, pool := setUp(t, v)
				publish(t, pool, 5)
				eventstest.Tick(t, pool, queue)
				var got tally
				c := handler(pool, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error {
					if got.add(e) == 1 && string(e.Payload) == "2" {
						return errors.New("once")
					}
					return nil
				})
				if point == eventstest.Booked { // reached only in a batch that was left open
					if _, err := c.Step(eventstest.CrashAt(t.Context(), eventstest.Handled, 1)); !errors.Is(err, eventstest.Crashed) {
						t.Fatal(err)
					}
				}
				if _, err := c.Step(eventstest.CrashAt(t.Context(), point, 1)); !errors.Is(err, eventstest.Crashed) {
					t.Fatalf("Step = %v, want a crash", err)
				}
				eventstest.Drain(t, pool, queue, c)
				for range 3 {
					eventstest.RetryNow(t, pool, queue)
					eventstest.Drain(t, pool, queue, c)
				}
				if distinct, _ := got.count(); distinct != 5 {
					t.Errorf("handled %d of 5 events: %v", distinct, got.order())
				}
				if n := value[int](t, pool, retries) + value[int](t, pool, dead); n != 0 {
					t.Errorf("%d rows are left in the retry queue or dead letters", n)
				}
			})
		}
	})
}

// One event kills the process each time it runs. The 99 others are handled, none
// of them is dead-lettered, and each crash costs the killer one attempt.
func TestOneKiller(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		_, pool := setUp(t, v)
		publish(t, pool, 100)
		eventstest.Tick(t, pool, queue)
		done, crashes := map[string]int{}, 0
		process := func() error { // one process's life, as far as the batches go
			ctx, die := context.WithCancel(context.Background())
			defer die()
			killed := false
			c := handler(pool, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error {
				if string(e.Payload) == "50" {
					killed = true
					return nil
				}
				done[string(e.Payload)]++
				return nil
			})
			// The hook is asked right after each handler, as if the process had
			// died inside it.
			for {
				n, err := c.Step(eventstest.CrashWhen(ctx, eventstest.Handled, func() bool { return killed }))
				if err != nil || n == 0 {
					return err
				}
			}
		}
		for range 30 {
			err := process()
			if errors.Is(err, eventstest.Crashed) {
				crashes++
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if eventstest.RetryNow(t, pool, queue) == 0 {
				break
			}
		}
		if len(done) != 99 {
			t.Errorf("%d of the 99 others were handled", len(done))
		}
		if got := value[string](t, pool, "select string_agg(ev_data, ' ') from pgque.dead_letter"); got != "50" {
			t.Errorf("dead letters %q, want the killer only", got)
		}
		// The batch of its first delivery costs two crashes (the first is without
		// a booking), and so does each of its retries.
		if crashes < 6 || crashes > 12 {
			t.Errorf("%d crashes", crashes)
		}
		if n := value[int](t, pool, retries); n != 0 {
			t.Errorf("%d retries are left", n)
		}
	})
}

// B018, B091: another process finished the batch in between; nothing is settled.
func TestStaleAck(t *testing.T) {
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		_, pool := setUp(t, v)
		for _, fail := range []bool{false, true} {
			publish(t, pool, 3)
			eventstest.Tick(t, pool, queue)
			var settled events.Settled
			c := handler(pool, events.ConsumerConfig{Observer: func(o events.Observation) {
				if s, ok := o.(events.Settled); ok {
					settled = s
				}
			}}, func(_ context.Context, e *events.Event) error {
				_, _ = pool.Exec(context.Background(), "select pgque.ack(sub_batch) from pgque.subscription where sub_batch is not null")
				if fail {
					return errors.New("no")
				}
				return nil
			})
			if _, err := c.Step(t.Context()); !errors.Is(err, events.ErrStaleBatch) {
				t.Errorf("fail=%v: Step = %v, want ErrStaleBatch", fail, err)
			}
			if !settled.Stale {
				t.Errorf("fail=%v: observed %+v", fail, settled)
			}
			if n := value[int](t, pool, retries); n != 0 {
				t.Errorf("fail=%v: %d retries were written", fail, n)
			}
		}
	})
}

// The same for a batch that was left open, whose events ran one at a time.
func TestStaleAckOfAnOpenBatch(t *testing.T) {
	_, pool := setUp(t, newest(t))
	publish(t, pool, 1)
	eventstest.Tick(t, pool, queue)
	c := handler(pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error {
		_, _ = pool.Exec(context.Background(), "select pgque.ack(sub_batch) from pgque.subscription where sub_batch is not null")
		return nil
	})
	if _, err := c.Step(eventstest.CrashAt(t.Context(), eventstest.Received, 1)); !errors.Is(err, eventstest.Crashed) {
		t.Fatal(err)
	}
	if _, err := c.Step(t.Context()); !errors.Is(err, events.ErrStaleBatch) {
		t.Errorf("Step = %v, want ErrStaleBatch", err)
	}
}

// B090, B096: the first release is too old, and that is said.
func TestFirstReleaseIsRefused(t *testing.T) {
	db := pgtest.Database(t)
	db.Install(t, pgtest.Real(t, "v0.1.0"))
	pool := db.Pool(t)
	db.Exec(t, "select pgque.create_queue('q')")
	c := handler(pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return nil })
	if err := c.Run(t.Context()); !errors.Is(err, events.ErrNotInstalled) {
		t.Errorf("Run = %v, want ErrNotInstalled", err)
	}
}

// A second consumer cannot step while the first is active.
func TestStepWhileLeased(t *testing.T) {
	_, pool := setUp(t, newest(t))
	r := start(t, pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return nil })
	until(t, "start", r.active)
	c := handler(pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return nil })
	if _, err := c.Step(t.Context()); !errors.Is(err, events.ErrLeased) {
		t.Errorf("Step = %v, want ErrLeased", err)
	}
}

// A booking is due only when no handler can still be running.
func TestBookingIsFarAhead(t *testing.T) {
	_, pool := setUp(t, pgtest.Variants(t)[len(pgtest.Variants(t))-1])
	publish(t, pool, 2)
	eventstest.Tick(t, pool, queue)
	c := handler(pool, events.ConsumerConfig{HandlerTimeout: time.Minute}, func(context.Context, *events.Event) error { return nil })
	for _, point := range []eventstest.Point{eventstest.Opened, eventstest.Booked} {
		if _, err := c.Step(eventstest.CrashAt(t.Context(), point, 1)); !errors.Is(err, eventstest.Crashed) {
			t.Fatal(err)
		}
	}
	got := value[string](t, pool, "select ev_data || ' ' || ev_retry || ' ' || (ev_retry_after between now() + interval '60 min' and now() + interval '61 min') from pgque.retry_queue")
	if want := "1 1 true"; got != want {
		t.Errorf("booking %q, want %q", got, want)
	}
}

// What the guard noted of a dead process stays noted when the connection of the next
// one is lost while it looks: its event does not run again.
func TestBookingOfADeadProcessStays(t *testing.T) {
	db, pool := setUp(t, newest(t))
	db.Exec(t, "update pgque.queue set queue_max_retries = 0")
	publish(t, pool, 3)
	eventstest.Tick(t, pool, queue)
	var got tally
	h := func(_ context.Context, e *events.Event) error { got.add(e); return nil }
	c := handler(pool, events.ConsumerConfig{}, h)
	for _, at := range []context.Context{eventstest.CrashAt(t.Context(), eventstest.Received, 1), eventstest.CrashAt(t.Context(), eventstest.Booked, 2)} {
		if _, err := c.Step(at); !errors.Is(err, eventstest.Crashed) {
			t.Fatal(err)
		}
	}
	if n := value[int](t, pool, dead); n != 1 {
		t.Fatalf("%d dead letters after the death at event 2", n)
	}
	net, looks := &lossy{}, 0
	net.when(func(sent []byte) bool {
		if bytes.Contains(sent, []byte("select exists (select from pgque.retry_queue where ev_owner")) {
			looks++
			return looks == 2
		}
		return false
	})
	r := start(t, net.pool(t, db.URL), events.ConsumerConfig{Poll: 50 * time.Millisecond}, h)
	until(t, "the end of the batch", func() bool {
		return value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is null") == 1
	})
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if slices.Contains(got.order(), "2") || value[int](t, pool, dead) != 1 {
		t.Errorf("handled %v, %d dead letters", got.order(), value[int](t, pool, dead))
	}
}

// The crash guard finds a booking whatever the login's DateStyle is.
func TestCrashGuardUnderGermanDates(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	role := db.Role(t)
	db.Exec(t, "grant pgque_admin to "+role)
	db.Exec(t, "alter role "+role+" set datestyle = 'German'")
	publish(t, pool, 2)
	eventstest.Tick(t, pool, queue)
	as := db.PoolAs(t, role)
	var got tally
	h := func(_ context.Context, e *events.Event) error { got.add(e); return nil }
	leaveOpen(t, handler(as, events.ConsumerConfig{}, h))
	if _, err := handler(as, events.ConsumerConfig{}, h).Step(eventstest.CrashAt(t.Context(), eventstest.Booked, 1)); !errors.Is(err, eventstest.Crashed) {
		t.Fatal(err)
	}
	if n, err := handler(as, events.ConsumerConfig{}, h).Step(t.Context()); err != nil {
		t.Error(n, err)
	}
	if n, _ := got.count(); n != 1 {
		t.Error(got.order())
	}
}
