package events_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

func newPool(t testing.TB, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// B053, B054: behind pgbouncer in transaction mode everything works, with pgx's
// default settings: the lease holds, and waking falls back to polling, said once.
func TestBehindPgbouncer(t *testing.T) {
	t.Parallel()
	db, direct := setUp(t, newest(t))
	url := pgtest.Bouncer(t, db, "transaction")
	var got tally
	h := func(_ context.Context, e *events.Event) error {
		if got.add(e) == 1 && len(e.Payload) == 2 {
			return events.RetryAfter(0, errors.New("once"))
		}
		return nil
	}
	cfg := events.ConsumerConfig{Poll: 50 * time.Millisecond, Workers: 2}
	a, b := start(t, newPool(t, url, nil), cfg, h), start(t, newPool(t, url, nil), cfg, h)
	until(t, "one active, one standing by", func() bool {
		return a.log.count("standing by")+b.log.count("standing by") == 1 && (a.active() || b.active())
	})
	publisher := newPool(t, url, nil)
	for range 100 {
		publish(t, publisher, 1)
	}
	publish(t, publisher, 100)
	eventstest.Tick(t, direct, queue)
	until(t, "all handled", func() bool { distinct, _ := got.count(); return distinct == 100 })
	until(t, "settled", func() bool { return value[int](t, direct, retries) == 90 })
	if a.active() && b.active() {
		t.Error("both were active")
	}
	until(t, "polling is said", func() bool { return a.log.count("polling only") == 1 && b.log.count("polling only") == 1 })
	first, second := a, b
	if b.active() {
		first, second = b, a
	}
	if err := first.end(); err != nil {
		t.Error(err)
	}
	until(t, "take-over", second.active)
	if err := second.end(); err != nil {
		t.Error(err)
	}
}

// B081: the database's defaults are not ours to rely on.
func TestDatabaseDefaults(t *testing.T) {
	for _, setting := range []string{
		"default_transaction_isolation = 'serializable'", "default_transaction_isolation = 'repeatable read'",
		"default_transaction_read_only = on", "idle_in_transaction_session_timeout = '100ms'", "search_path = ''",
		"datestyle = 'German, DMY'", "timezone = 'Asia/Kathmandu'", "bytea_output = 'escape'", "statement_timeout = '2s'",
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			db, direct := setUp(t, newest(t))
			db.Exec(t, fmt.Sprintf("alter database %q set %s", db.Name, setting))
			pool := newPool(t, db.URL, nil)
			publish(t, direct, 10)
			eventstest.Tick(t, direct, queue)
			began := time.Now()
			var ran atomic.Int32
			r := start(t, pool, events.ConsumerConfig{Workers: 3}, func(_ context.Context, e *events.Event) error {
				if d := began.Sub(e.Time); d < 0 || d > time.Minute {
					t.Errorf("event time %s", e.Time)
				}
				if ran.Add(1) == 1 {
					time.Sleep(300 * time.Millisecond) // longer than the idle limit
				}
				return errors.New("again")
			})
			until(t, "settling", func() bool { return value[int](t, direct, retries) == 10 })
			if err := r.end(); err != nil {
				t.Error(err)
			}
			if n := ran.Load(); n != 10 {
				t.Errorf("%d handler calls, want 10", n)
			}
		})
	}
}

// B041: the network goes silent in the middle of a handler. Another process takes
// over; the first one's handlers are cancelled and it settles nothing.
func TestSilentNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for time limits")
	}
	for name, direction := range map[string]pgtest.Direction{"both": pgtest.Both, "to server": pgtest.ToServer, "to client": pgtest.ToClient} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, direct := setUp(t, newest(t))
			proxy := pgtest.Proxy(t, db.Server.Address())
			publish(t, direct, 4)
			eventstest.Tick(t, direct, queue)
			in, cancelled := make(chan struct{}, 1), make(chan struct{})
			a := start(t, newPool(t, proxy.URL(t, db.URL), nil), events.ConsumerConfig{}, func(ctx context.Context, _ *events.Event) error {
				in <- struct{}{}
				<-ctx.Done()
				close(cancelled)
				return nil
			})
			<-in
			proxy.Silence(direction)
			cut := time.Now()
			var got tally
			b := start(t, direct, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error {
				select {
				case <-cancelled:
				default:
					t.Error("the second handles while the first's handler still runs")
				}
				got.add(e)
				return nil
			})
			until(t, "take-over", func() bool { n, _ := got.count(); return n == 4 })
			t.Logf("taken over after %s", time.Since(cut).Round(100*time.Millisecond))
			stopped := time.Now()
			if err := a.end(); err != nil {
				t.Logf("Run of the cut-off process = %v", err)
			}
			t.Logf("the cut-off process ended in %s", time.Since(stopped).Round(100*time.Millisecond))
			if err := b.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// B058: the server is stopped and started under a running consumer.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	pg := pgtest.NewServer(t, pgtest.Options{})
	db := pg.Database(t)
	db.Install(t, newest(t))
	pool := db.Pool(t)
	if _, err := events.EnsureQueue(t.Context(), pool, queue, nil); err != nil {
		t.Fatal(err)
	}
	var got tally
	r := start(t, pool, events.ConsumerConfig{Poll: 100 * time.Millisecond}, func(_ context.Context, e *events.Event) error { got.add(e); return nil })
	until(t, "start", r.active)
	for i := range 2 {
		pg.Restart(t)
		restarted := time.Now()
		conn := db.Connect(t)
		publish(t, conn, 10*(i+1))
		eventstest.Tick(t, conn, queue)
		until(t, "delivery after a restart", func() bool { n, _ := got.count(); return n == 10*(i+1) })
		t.Logf("delivered %s after the restart", time.Since(restarted).Round(10*time.Millisecond))
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// A rolling restart under load, with a pool of one connection that is retired all
// the time, repeats no side effect.
func TestRollingRestart(t *testing.T) {
	db, direct := setUp(t, newest(t))
	ticker := events.NewTicker(direct, events.TickerConfig{Every: 20 * time.Millisecond, MaxLag: time.Millisecond})
	ctx, stop := context.WithCancel(context.Background())
	ticking := make(chan error, 1)
	go func() { ticking <- ticker.Run(ctx) }()
	var got tally
	h := func(_ context.Context, e *events.Event) error {
		time.Sleep(time.Millisecond)
		got.add(e)
		return nil
	}
	begin := func() *running {
		return start(t, newPool(t, db.URL, func(c *pgxpool.Config) { c.MaxConns, c.MaxConnLifetime = 1, 100*time.Millisecond }),
			events.ConsumerConfig{Workers: 3, Poll: 50 * time.Millisecond}, h)
	}
	old := begin()
	sent := 0
	for range 6 {
		next := begin()
		for range 10 {
			es := make([]events.Event, 20)
			for i := range es {
				sent++
				es[i] = events.Event{Type: "t", Payload: fmt.Append(nil, sent)}
			}
			if _, err := events.SendBatch(t.Context(), direct, queue, es); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // the load goes on while they change over
		}
		if err := old.end(); err != nil {
			t.Fatal(err)
		}
		old = next
	}
	until(t, "all handled", func() bool { n, _ := got.count(); return n == sent })
	if err := old.end(); err != nil {
		t.Error(err)
	}
	if distinct, total := got.count(); distinct != sent || total != sent {
		t.Errorf("handled %d events %d times, want %d once", distinct, total, sent)
	}
	stop()
	if err := <-ticking; err != nil {
		t.Error(err)
	}
}
