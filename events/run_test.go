package events_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// newest is one variant, for tests whose subject is this library and not PgQue.
func newest(t testing.TB) pgtest.Variant {
	all := pgtest.Variants(t)
	return all[len(all)-1]
}

// running is a consumer in the background.
type running struct {
	t    testing.TB
	c    *events.Consumer
	stop context.CancelFunc
	done chan error
	log  *logBuffer
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t testing.TB, pool *pgxpool.Pool, cfg events.ConsumerConfig, h events.Handler) *running {
	t.Helper()
	r := &running{t: t, done: make(chan error, 1), log: &logBuffer{}}
	cfg.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	r.c = handler(pool, cfg, h)
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	go func() { r.done <- r.c.Run(ctx) }()
	t.Cleanup(func() {
		r.stop()
		r.c.Abort()
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// end stops the consumer and returns what Run returned.
func (r *running) end() error {
	r.t.Helper()
	r.stop()
	return r.wait()
}

func (r *running) wait() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(patience):
		r.t.Fatalf("Run did not return within %s; log:\n%s", patience, r.log)
		return nil
	}
}

// patience is how long tests wait for what must come about: more than a busy
// machine needs. How fast it comes is for the benchmarks to say.
const patience = 2 * time.Minute

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

func (r *running) active() bool { return r.log.count("msg=consuming") > 0 }

// B019: SIGTERM in the middle of a handler. It finishes, what was handled is
// acked, what was not started comes again with its attempts unchanged.
func TestShutdownInTheMiddle(t *testing.T) {
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		_, pool := setUp(t, v)
		publish(t, pool, 5)
		eventstest.Tick(t, pool, queue)
		var got tally
		inHandler, goOn := make(chan struct{}), make(chan struct{})
		r := start(t, pool, events.ConsumerConfig{}, func(ctx context.Context, e *events.Event) error {
			got.add(e)
			if string(e.Payload) == "2" {
				close(inHandler)
				<-goOn
				return ctx.Err() // it has not ended: the grace is not over
			}
			return nil
		})
		<-inHandler
		r.stop()
		close(goOn)
		if err := r.wait(); err != nil {
			t.Fatalf("Run = %v", err)
		}
		if n := value[int](t, pool, "select count(*) from pgque.retry_queue where ev_retry is null and ev_retry_after <= now()"); n != 3 {
			t.Errorf("%d events went back unchanged and due, want 3", n)
		}
		eventstest.RetryNow(t, pool, queue)
		eventstest.Drain(t, pool, queue, handler(pool, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error {
			if e.Attempt != 1 {
				t.Errorf("event %s is at attempt %d", e.Payload, e.Attempt)
			}
			got.add(e)
			return nil
		}))
		if distinct, total := got.count(); distinct != 5 || total != 5 {
			t.Errorf("handled %d events %d times, want 5 once: %v", distinct, total, got.order())
		}
	})
}

func TestGraceExceeded(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	publish(t, pool, 2)
	eventstest.Tick(t, pool, queue)
	in := make(chan struct{})
	r := start(t, pool, events.ConsumerConfig{Grace: 50 * time.Millisecond}, func(ctx context.Context, e *events.Event) error {
		close(in)
		<-ctx.Done()
		return ctx.Err()
	})
	<-in
	if err := r.end(); !errors.Is(err, events.ErrGraceExceeded) {
		t.Errorf("Run = %v, want ErrGraceExceeded", err)
	}
	// The handler returned when its context ended: both events are back.
	if n := value[int](t, pool, "select count(*) from pgque.retry_queue where ev_retry is null"); n != 2 {
		t.Errorf("%d events went back with their attempts unchanged, want 2", n)
	}
}

func TestAbort(t *testing.T) {
	_, pool := setUp(t, newest(t))
	publish(t, pool, 2)
	eventstest.Tick(t, pool, queue)
	in, never := make(chan struct{}), make(chan struct{})
	defer close(never)
	r := start(t, pool, events.ConsumerConfig{}, func(ctx context.Context, e *events.Event) error {
		close(in)
		<-never // heeds nothing
		return nil
	})
	<-in
	r.c.Abort()
	if err := r.wait(); !errors.Is(err, events.ErrAborted) {
		t.Errorf("Run = %v, want ErrAborted", err)
	}
	if n := value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is not null"); n != 1 {
		t.Error("the batch is no longer open")
	}
}

// B093: stopping does not wait for the poll, and a tick is heard at once.
func TestWakeUp(t *testing.T) {
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		_, pool := setUp(t, v)
		var at atomic.Int64
		r := start(t, pool, events.ConsumerConfig{Poll: 30 * time.Second}, func(context.Context, *events.Event) error {
			at.Store(time.Now().UnixNano())
			return nil
		})
		until(t, "listening", func() bool {
			return value[int](t, pool, "select count(*) from pg_stat_activity where datname = current_database() and query = 'listen \"pgque_q\"'") > 0 && r.active()
		})
		for range 3 {
			publish(t, pool, 1)
			at.Store(0)
			ticked := time.Now()
			eventstest.Tick(t, pool, queue)
			until(t, "delivery", func() bool { return at.Load() != 0 })
			if d := time.Unix(0, at.Load()).Sub(ticked); d > 20*time.Second {
				t.Errorf("delivered %s after the tick, by the poll", d)
			}
		}
		began := time.Now()
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("stopping took %s, the time of a poll", d)
		}
	})
}

// B018, B032: one works, the other stands by and takes over; the loser's handlers
// are cancelled and nothing of theirs is settled.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	publish(t, pool, 3)
	eventstest.Tick(t, pool, queue)
	var cancelled atomic.Int32
	var second tally
	in := make(chan struct{}, 10)
	block := func(ctx context.Context, e *events.Event) error {
		in <- struct{}{}
		<-ctx.Done()
		cancelled.Add(1)
		return nil // as if it were done: it must not count
	}
	a := start(t, pool, events.ConsumerConfig{}, block)
	<-in
	b := start(t, db.Pool(t), events.ConsumerConfig{Workers: 2}, func(_ context.Context, e *events.Event) error { second.add(e); return nil })
	until(t, "standing by", func() bool { return b.log.count("standing by") == 1 })
	a.stop() // so that it does not come back for the lease
	_, err := pool.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted
		and database = (select oid from pg_database where datname = current_database())`)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "take-over", func() bool { n, _ := second.count(); return n == 3 })
	until(t, "cancelling", func() bool { return cancelled.Load() > 0 })
	if n := a.log.count("stale"); n != 0 {
		t.Error("the loser tried to settle")
	}
	if err := a.wait(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if err := b.end(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if distinct, total := second.count(); distinct != 3 || total != 3 {
		t.Errorf("the second handled %d events %d times", distinct, total)
	}
}

// B031, B058, B041: every connection is terminated; it goes on by itself.
func TestTerminatedConnections(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	admin := db.Connect(t)
	var got tally
	r := start(t, pool, events.ConsumerConfig{Poll: 100 * time.Millisecond}, func(_ context.Context, e *events.Event) error { got.add(e); return nil })
	until(t, "start", r.active)
	total := 0
	for range 3 {
		if _, err := admin.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"); err != nil {
			t.Fatal(err)
		}
		publish(t, admin, 10)
		eventstest.Tick(t, admin, queue)
		total += 10
		until(t, "delivery after termination", func() bool { _, n := got.count(); return n >= total })
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if r.log.count("listening again") == 0 {
		t.Error("the listener did not say that it is back")
	}
}

// B020: settling fails for a while. The handlers run once; it recovers by itself.
func TestSettlingFails(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	admin := db.Connect(t)
	publish(t, pool, 3)
	eventstest.Tick(t, pool, queue)
	if _, err := admin.Exec(t.Context(), `create function fail() returns trigger language plpgsql as $$ begin raise exception 'no ack today'; end $$;
		create trigger fail before update of sub_batch on pgque.subscription for each row when (new.sub_batch is null) execute function fail()`); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	r := start(t, pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error {
		calls.Add(1)
		return errors.New("fails as well")
	})
	until(t, "two tries", func() bool { return r.log.count("settling failed") >= 2 })
	if n := calls.Load(); n != 3 {
		t.Errorf("%d handler calls, want 3", n)
	}
	if _, err := admin.Exec(t.Context(), "drop trigger fail on pgque.subscription"); err != nil {
		t.Fatal(err)
	}
	until(t, "recovery", func() bool {
		return value[int](t, admin, "select count(*) from pgque.subscription where sub_batch is not null") == 0
	})
	if n := value[int](t, admin, retries); n != 3 || calls.Load() != 3 {
		t.Errorf("%d retries after %d handler calls, want 3 and 3", n, calls.Load())
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// An idle consumer takes no transaction id and writes no WAL.
func TestIdleIsFree(t *testing.T) {
	_, pool := setUp(t, newest(t))
	r := start(t, pool, events.ConsumerConfig{Poll: 10 * time.Millisecond}, func(context.Context, *events.Event) error { return nil })
	until(t, "start", r.active)
	until(t, "the listener", func() bool {
		return value[int](t, pool, "select count(*) from pg_stat_activity where datname = current_database() and query = 'listen \"pgque_q\"'") == 1
	})
	state := func() string {
		return value[string](t, pool, "select pg_snapshot_xmax(pg_current_snapshot())::text || ' ' || (select n_tup_upd from pg_stat_user_tables where relid = 'pgque.subscription'::regclass)")
	}
	// Transaction ids are the whole server's, and autovacuum takes some.
	until(t, "half a second, so fifty looks, with no transaction id taken", func() bool {
		before := state()
		time.Sleep(500 * time.Millisecond)
		return state() == before
	})
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// B059: what each role can do, and what it is told.
func TestRoles(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		db, pool := setUp(t, v)
		as := func(role string) *pgxpool.Pool {
			login := db.Role(t)
			if role != "" {
				db.Exec(t, fmt.Sprintf("grant %s to %q", role, login))
			}
			return db.PoolAs(t, login)
		}
		writer, reader, admin, nobody := as("pgque_writer"), as("pgque_reader"), as("pgque_admin"), as("")
		publish(t, writer, 4)
		if _, err := events.Send(t.Context(), reader, queue, events.Event{Type: "t", Payload: []byte("1")}); !errors.Is(err, events.ErrPermission) {
			t.Errorf("send as reader: %v, want ErrPermission", err)
		}
		for _, p := range []*pgxpool.Pool{writer, nobody} {
			c := handler(p, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return nil })
			if err := c.Run(t.Context()); !errors.Is(err, events.ErrPermission) || !strings.Contains(err.Error(), "grant pgque_reader to") {
				t.Errorf("consume without pgque_reader: %v", err)
			}
		}
		eventstest.Tick(t, pool, queue)
		var got tally
		r := start(t, reader, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error {
			got.add(e)
			switch string(e.Payload) {
			case "2":
				return errors.New("no")
			case "3":
				return events.Dead(errors.New("never"))
			}
			return nil
		})
		until(t, "settled", func() bool { return value[int](t, pool, retries) == 2 })
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if distinct, total := got.count(); distinct != 4 || total != 4 {
			t.Errorf("reader handled %d events %d times", distinct, total)
		}
		if n := r.log.count("grant pgque_admin to"); n != 1 {
			t.Errorf("the reader was told %d times what it lacks", n)
		}
		publish(t, admin, 1)
		if n := eventstest.Drain(t, admin, queue, handler(admin, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return events.Dead(nil) })); n != 1 {
			t.Errorf("admin handled %d", n)
		}
		if n := value[int](t, pool, dead); n != 1 {
			t.Errorf("%d dead letters, want the admin's", n)
		}
	})
}
