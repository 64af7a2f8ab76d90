package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// tracer is told of every statement that goes through pgx.
type tracer func(ctx context.Context, sql string)

func (f tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	f(ctx, data.SQL)
	return ctx
}

func (tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// answered is told when the answer to a statement that contains a text was read.
type answered struct {
	text string
	then *func()
}

func (a answered) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(data.SQL, a.text) {
		return ctx
	}
	return context.WithValue(ctx, answered{}, true)
}

func (a answered) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(answered{}) != nil {
		(*a.then)()
	}
}

// Found by TestModel: a stop at the very moment at which the lease is got kept the
// lease for as long as the process lived, so no other became active again.
func TestStopWhileGettingTheLease(t *testing.T) {
	t.Parallel()
	db, direct := setUp(t, newest(t))
	var r *running
	ready := make(chan struct{})
	then := func() { <-ready; r.stop() }
	pool := newPool(t, db.URL, func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = answered{"pg_try_advisory_xact_lock", &then}
	})
	h := func(context.Context, *events.Event) error { return nil }
	r = start(t, pool, events.ConsumerConfig{}, h)
	close(ready)
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	if n := value[int](t, direct, "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())"); n != 0 {
		t.Error("Run has returned and keeps the lease")
	}
}

// B041: every statement of consumer, ticker, publisher and administration has a
// deadline, also those that are there for failures only.
func TestEveryStatementHasADeadline(t *testing.T) {
	t.Parallel()
	db, direct := setUp(t, newest(t))
	var mu sync.Mutex
	without := map[string]bool{}
	seen := 0
	pool := newPool(t, db.URL, func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = tracer(func(ctx context.Context, sql string) {
			mu.Lock()
			defer mu.Unlock()
			seen++
			if _, ok := ctx.Deadline(); !ok {
				without[sql] = true
			}
		})
	})
	ctx := t.Context()
	for _, name := range []string{"other", "unread"} {
		if _, err := events.EnsureQueue(ctx, pool, name, events.Settings{"max_retries": "2"}); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, pool, 3)
	eventstest.Tick(t, direct, queue)
	h := func(context.Context, *events.Event) error { return events.Dead(nil) }
	if _, err := handler(pool, events.ConsumerConfig{}, h).Step(eventstest.CrashAt(ctx, eventstest.Handled, 2)); !errors.Is(err, eventstest.Crashed) {
		t.Fatal(err)
	}
	r := start(t, pool, events.ConsumerConfig{Poll: 20 * time.Millisecond}, h) // under the guard
	until(t, "dead letters", func() bool { return value[int](t, direct, dead) == 3 })
	// Retries and rotations of a queue that is damaged are done one by one.
	db.Exec(t, `select pgque.subscribe('other', 'c'); select pgque.event_retry_raw('other', 'c', now(), 1, now(), 1, 't', '{}', null, null, null, null);
		update pgque.queue set queue_switch_time = now() - interval '3 hours';
		update pgque.queue set queue_data_pfx = 'pgque.gone' where queue_name = 'other'`)
	db.Exec(t, fmt.Sprintf("drop table %s_1", db.Value(t, "select queue_data_pfx from pgque.queue where queue_name = 'unread'"))) // which no consumer keeps from rotating
	var failed sync.Map
	tickerCtx, stop := context.WithCancel(ctx)
	ticked := make(chan error, 1)
	go func() {
		ticked <- events.NewTicker(pool, events.TickerConfig{MaxLag: time.Millisecond, Nudge: time.Millisecond, Observer: func(o events.Observation) {
			if f, ok := o.(events.TickerFailed); ok && f.Queue != "" {
				failed.Store(f.Action, true)
			}
		}}).Run(tickerCtx)
	}()
	until(t, "failures of the damaged queue", func() bool {
		_, retry := failed.Load("retry")
		_, rotate := failed.Load("rotate")
		return retry && rotate
	})
	for d, err := range events.DeadLetters(ctx, pool, events.DeadLetterFilter{}) {
		if _, rerr := events.Replay(ctx, pool, events.DeadLetterFilter{IDs: []int64{d.ID}}); err != nil || rerr != nil {
			t.Error(err, rerr)
		}
	}
	_, _ = events.Peek(ctx, pool, queue, 10)
	_, _ = events.Queues(ctx, pool)
	_, _ = events.Consumers(ctx, pool, "")
	_, _ = events.Health(ctx, pool, events.HealthConfig{})
	_ = (&events.Nudger{}).Nudge(ctx, pool)
	_, _ = events.PurgeInbox(ctx, pool, time.Hour)
	_, _ = events.Purge(ctx, pool, events.DeadLetterFilter{Queue: queue})
	if err := r.end(); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ticked; err != nil {
		t.Error(err)
	}
	_, _ = events.Unsubscribe(ctx, pool, queue, consumer)
	_ = events.DropQueue(ctx, pool, queue, true)
	mu.Lock()
	defer mu.Unlock()
	for sql := range without {
		t.Errorf("without a deadline: %s", sql)
	}
	if seen < 50 {
		t.Errorf("only %d statements were seen", seen)
	}
}

// B093: 10,000 notifications in a burst lead to few looks, and none of the events
// behind them waits for the poll.
func TestBurstOfNotifications(t *testing.T) {
	t.Parallel()
	db, direct := setUp(t, newest(t))
	var looks atomic.Int64
	pool := newPool(t, db.URL, func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = tracer(func(_ context.Context, sql string) {
			if strings.Contains(sql, "sub_last_tick") {
				looks.Add(1)
			}
		})
	})
	var got tally
	r := start(t, pool, events.ConsumerConfig{Poll: time.Minute}, func(_ context.Context, e *events.Event) error { got.add(e); return nil })
	until(t, "start", r.active)
	until(t, "listening", func() bool { // its proof wakes it, so it looks for a second time
		return looks.Load() >= 2
	})
	before := looks.Load()
	publish(t, direct, 5)
	if _, err := direct.Exec(t.Context(), "select count(pg_notify('pgque_q', i::text)) from generate_series(1, 10000) i"); err != nil {
		t.Fatal(err)
	}
	eventstest.Tick(t, direct, queue)
	until(t, "delivery", func() bool { n, _ := got.count(); return n == 5 })
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if n := looks.Load() - before; n > 1000 {
		t.Errorf("%d looks for 10,000 notifications", n)
	}
}

// PgQue speaks of corruption when a call waited for another session's ack. That is
// asked again at once, and nobody is told.
func TestSpuriousCorruption(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		db, pool := setUp(t, v)
		for range 2 {
			publish(t, pool, 2)
			eventstest.Tick(t, pool, queue)
		}
		other := db.Connect(t)
		var batch int64
		if err := other.QueryRow(t.Context(), "select pgque.next_batch('q', 'c')").Scan(&batch); err != nil {
			t.Fatal(err)
		}
		tx, err := other.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "select pgque.ack($1)", batch); err != nil {
			t.Fatal(err)
		}
		var got tally
		login := db.Role(t)
		db.Exec(t, "grant pgque_admin to "+login)
		r := start(t, db.PoolAs(t, login), events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error { got.add(e); return nil })
		until(t, "the wait for the row", func() bool {
			return value[int](t, pool, "select count(*) from pg_stat_activity where datname = current_database() and usename = $1 and wait_event_type = 'Lock'", login) > 0
		})
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, "the second batch", func() bool { n, _ := got.count(); return n == 2 })
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if strings.Contains(r.log.String(), "level=ERROR") {
			t.Errorf("log:\n%s", r.log)
		}
	})
}

// B088: the answer to the lock call comes too late. The connection that holds the
// lock by now is closed, not put aside, so the next one gets it.
func TestLateAnswerToTheLock(t *testing.T) {
	t.Parallel()
	db, direct := setUp(t, newest(t))
	var net lossy
	net.late = true
	pool := net.pool(t, db.URL)
	h := func(context.Context, *events.Event) error { return nil }
	net.onceAfter("pg_try_advisory_xact_lock", "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := handler(pool, events.ConsumerConfig{}, h).Step(ctx); err == nil || errors.Is(err, events.ErrLeased) {
		t.Fatalf("Step = %v, want that no answer came", err)
	}
	until(t, "the lease for the next", func() bool {
		_, err := handler(direct, events.ConsumerConfig{}, h).Step(context.Background())
		return err == nil
	})
}

// A stop in the middle of a batch that is read in pieces: what was not started, and
// what was not even read, goes back in the same transaction.
func TestShutdownInALargeBatch(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	const all = 3_000 // 24 MB, so two pieces
	if _, err := pool.Exec(t.Context(), "select pgque.send_batch('q', 't', array(select '\"' || repeat('x', 8000) || i || '\"' from generate_series(1, $1::int) i))", all); err != nil {
		t.Fatal(err)
	}
	eventstest.Tick(t, pool, queue)
	var handled atomic.Int64
	var r *running
	ready := make(chan struct{})
	r = start(t, pool, events.ConsumerConfig{Workers: 2}, func(context.Context, *events.Event) error {
		<-ready
		if handled.Add(1) == 500 {
			r.stop()
		}
		return nil
	})
	close(ready)
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	if n := value[int](t, pool, "select count(*) from pgque.retry_queue where ev_retry is null and ev_retry_after <= now()"); n != all-int(handled.Load()) {
		t.Errorf("%d events were handled and %d went back, of %d", handled.Load(), n, all)
	}
	if n := value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is not null"); n != 0 {
		t.Error("the batch is still open")
	}
}

// A pool may have its calls cancelled at the server before it gives them up. Nobody
// answers a cancelled wait for a notification, so a stop does not wait for that.
func TestStopWhileListening(t *testing.T) {
	t.Parallel()
	db, direct := setUp(t, newest(t))
	pool := newPool(t, db.URL, func(c *pgxpool.Config) {
		c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Hour}
		}
	})
	r := start(t, pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return nil })
	until(t, "start", r.active)
	until(t, "the listener", func() bool {
		return value[int](t, direct, "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen \"pgque_q\"'") == 1
	})
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// Behind a pooler the session that a LISTEN reached stays, and is others'. Listening
// to ticks there would have it told of every tick for as long as it lives.
func TestListensWhereItIsProven(t *testing.T) {
	t.Parallel()
	db, direct := setUp(t, newest(t))
	var mu sync.Mutex
	var statements []string
	pool := newPool(t, pgtest.Bouncer(t, db, "transaction"), func(c *pgxpool.Config) {
		c.MaxConns = 20
		c.ConnConfig.Tracer = tracer(func(_ context.Context, sql string) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(sql, "listen ") {
				statements = append(statements, sql)
			}
		})
	})
	r := start(t, pool, events.ConsumerConfig{Poll: 20 * time.Millisecond}, func(context.Context, *events.Event) error { return nil })
	until(t, "polling is said", func() bool { return r.log.count("polling only") == 1 })
	if err := r.end(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	seen := slices.Clone(statements)
	mu.Unlock()
	if len(seen) != 2 || !strings.HasPrefix(seen[0], `listen "pgque_proof_`) || seen[1] != "un"+seen[0] {
		t.Errorf("statements %q", seen)
	}
	// One transaction each on all sessions that the pooler has, and a new one.
	sessions := value[int](t, direct, "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend'")
	for range min(sessions, 20) {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		if got := value[string](t, tx, "select coalesce(string_agg(c, ' '), '') from pg_listening_channels() c"); strings.Contains(got, "pgque_"+queue) {
			t.Errorf("a session of the pooler listens to %s", got)
		}
	}
}
